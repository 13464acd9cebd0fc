#!/bin/bash
# A program that saves when it is told to end: saver.sh FOLDER. Started again, it finds what it saved and is finished.
saved=$1/saved.$SLURM_PROCID
echo "rank $SLURM_PROCID starts, restart ${SLURM_RESTART_COUNT:-0}"
if [[ -e $saved ]]; then
  echo "rank $SLURM_PROCID is finished"
  exit 0
fi
save() {
  echo "rank $SLURM_PROCID saves after $1"
  touch "$saved"
  exit 0
}
trap 'save USR1' USR1
trap 'save TERM' TERM
echo "rank $SLURM_PROCID waits"
for ((i = 0; i < 3000; i++)); do
  sleep 0.1 &
  wait $!
done
exit 1
