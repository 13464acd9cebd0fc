#!/bin/bash
# A rank that saves when it is told to end: saver.sh FOLDER. Started again, it finds what it saved and is finished.
rank=${RANK:-$SLURM_PROCID}
saved=$1/saved.$rank
echo "rank $rank starts, restart ${SLURM_RESTART_COUNT:-0}"
if [[ -e $saved ]]; then
  echo "rank $rank is finished"
  exit 0
fi
save() {
  echo "rank $rank saves after $1"
  : >"$saved"
  exit 0
}
trap 'save USR1' USR1
trap 'save TERM' TERM
echo "rank $rank waits"
for ((i = 0; i < 3000; i++)); do
  sleep 0.1 &
  wait $!
done
exit 1
