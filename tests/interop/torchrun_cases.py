"""The command lines that both launchers get, and the differences that are allowed, each with its reason."""
import signal

# Variables that differ in every case.
ALWAYS = {
    "TORCHELASTIC_ERROR_FILE": "folders of each launcher's own; how it ends is compared",
    "LOCKSTEP_JOB_TOKEN": "the secret of a job of ours, by which its ranks and nodes know each other",
    "LOCKSTEP_LAUNCHERS": "the mark by which what is left of a killed launcher's job is found",
    "LOCKSTEP_HEARTBEAT_FILE": "where our ranks show their progress",
    "LOCKSTEP_STACK_FILE": "where our ranks write their stacks when they are asked to",
}
FREE_PORT = {"MASTER_PORT": "each launcher takes a free port"}
STANDALONE = {
    **FREE_PORT,
    "MASTER_ADDR": "torchrun gives the host's full name, which must resolve; ours is the loopback address",
    "TORCHELASTIC_RUN_ID": "both are random",
}
OURS_ONLY = ["--torchrun-exit-codes"]


class Case:
    """`flags` are for both launchers, PORT in them is a free port. `how` starts the probe: "script" by Python, "program"
    by itself, "module" by -m, "path" by --run-path. `ours` are flags for ours only; `notes_differ` are the probe's notes
    that may differ."""

    def __init__(self, name, flags, actions="", how="script", arguments=(), variables=None, differs=None, ours=(),
                 send=None, after=(), stdin="", compare=("status", "notes"), notes_differ=()):
        self.name, self.flags, self.actions, self.how = name, list(flags), actions, how
        self.arguments, self.variables = list(arguments), variables or {}
        self.notes_differ = dict(notes_differ)
        self.differs = {**ALWAYS, **(differs or {})}
        self.ours, self.send, self.after, self.stdin, self.compare = list(ours), send, after, stdin, compare


ADDRESS = ["--master-addr=127.0.0.1", "--master-port=PORT"]
TWO = [*ADDRESS, "--nproc-per-node=2"]
LOGS = ["--log-dir=SCRATCH/logs", "--rdzv-id=job"]
MACROS = ["--nproc-per-node=9", "${local_rank}", "r$local_rank.txt", "$local_ranks", "$other", "${open", "--", "a b", ""]

CASES = [
    Case("static", ["--nproc_per_node", "2", *ADDRESS, "--role=trainer", "--rdzv-id=job", "--max-restarts=2",
                    "--monitor-interval=0.5", "--start-method", "fork", "--nnodes=1:1", "--node-rank=0"],
         arguments=MACROS),
    Case("endpoint", ["--nproc-per-node=2", "--rdzv-endpoint=127.0.0.1:PORT", "--rdzv-conf=timeout=60,rank=0"]),
    Case("pet_variables", ["--"], variables={
        "PET_MASTER_PORT": "PORT", "PET_NPROC_PER_NODE": "2", "PET_ROLE": "w", "PET_NO_PYTHON": "0", "PET_MODULE": "0",
        "OMP_NUM_THREADS": "3", "TORCH_NCCL_ASYNC_ERROR_HANDLING": "0", "CUDA_VISIBLE_DEVICES": ""}),
    Case("unique_prefixes", ["--nproc-per=2", "--master-p=PORT", "--max-r", "1", "--rol", "x", "--no-p"], how="program"),
    Case("standalone", ["--standalone", "--nproc-per-node=2"], differs=STANDALONE),
    Case("c10d", ["--rdzv-backend=c10d", "--rdzv-endpoint=localhost:0", "--rdzv-id=job", "--nproc-per-node=2",
                  "--local-addr=127.0.0.1"], differs=FREE_PORT),
    Case("module", [*TWO, "-m"], how="module", arguments=["-m", "x"], variables={"PYTHONPATH": "HERE"}),
    Case("run_path", [*TWO, "--run-path"], how="path", arguments=["x"], notes_differ={
        "leads_session": "torchrun's multiprocessing child stays in the agent's session; ours has its own, as all ranks"}),
    Case("virtual_local_rank", [*TWO, "--virtual-local-rank"], variables={"CUDA_VISIBLE_DEVICES": "3, 5"}),
    Case("virtual_local_rank_bare", [*TWO, "--virtual-local-rank"]),
    Case("signals_to_handle", [*TWO, "--signals-to-handle=SIGTERM,SIGUSR1"]),
    Case("standard_input", ADDRESS, "read", stdin="hello\n", compare=("status", "notes", "out")),
    Case("console", TWO, "say", compare=("status", "out")),
    Case("tee", [*TWO, *LOGS, "-t3", "--role=w"], "say", compare=("status", "out", "files")),
    Case("redirects", [*TWO, *LOGS, "-r", "0:1,1:2"], "say", compare=("status", "out", "files")),
    Case("tee_and_redirects", [*TWO, *LOGS, "--redirects=3", "--tee=1:1"], "say", compare=("status", "out", "files")),
    Case("local_ranks_filter", [*TWO, *LOGS, "--tee=0:3", "--local-ranks-filter=1,7"], "say",
         compare=("status", "out", "files")),
    Case("filters", [*TWO, *LOGS, "--tee=3", "--duplicate-stdout-filters=out of 1,nothing",
                     "--duplicate-stderr-filters=err"], "say", compare=("status", "out", "files")),
    Case("prefix_template", [*TWO, *LOGS, "--tee=1"], "say", compare=("status", "out"), variables={
        "TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE": "<${role_name} ${rank} $local_rank>"}),
    Case("no_log_files", [*TWO, "--log-dir=/dev/null", "-r3"], "say", compare=("status", "out", "notes"), differs={
        "TORCHELASTIC_ERROR_FILE": "torchrun gives none; ours has a temporary one, so that the report has the rank's words"}),
    Case("exit_code", [*TWO], "meet,rank=1:exit=7,wait", ours=OURS_ONLY),
    Case("killed", [*TWO], "meet,rank=0:kill=9,wait", ours=OURS_ONLY),
    Case("restarts", [*TWO, *LOGS, "--max-restarts=2", "-r1"], "say,meet,attempt=0:rank=1:exit=3,attempt=0:wait",
         compare=("status", "notes", "files")),
    Case("error_file", [*ADDRESS, *LOGS], "raise", ours=OURS_ONLY, compare=("status", "passed_on"),
         variables={"TORCHELASTIC_ERROR_FILE": "SCRATCH/passed_on"}),
    Case("events", [*TWO, "--event-log-handler=console"], compare=("status", "events")),
    Case("events_of_failure", [*TWO, "--event-log-handler=console", "--max-restarts=1"], "meet,rank=1:exit=4,wait",
         ours=OURS_ONLY, compare=("status", "events")),
    Case("sigterm", TWO, "wait", send=signal.SIGTERM, after=("0.0", "0.1"), ours=OURS_ONLY),
    Case("sigusr1_as_end", [*TWO, "--signals-to-handle=SIGUSR1"], "wait", send=signal.SIGUSR1, after=("0.0", "0.1"),
         ours=OURS_ONLY),
]

# For the parser alone: words, and whether torchrun takes them. Asked of the peer in one process.
REFUSED = [
    ["--nproc-per-node=x", "p"], ["--nnodes=2:1", "p"], ["--nnodes=0", "p"], ["--nnodes=1:2:3", "p"], ["--nnodes=x", "p"],
    ["--max-restarts=-1", "p"], ["--max-restarts=x", "p"], ["--master-port=x", "p"], ["--node-rank=x", "p"],
    ["--monitor-interval=x", "p"], ["--start-method=x", "p"], ["--nonsense", "p"], ["-x", "p"], [], ["--"],
    ["--rdzv-conf=a", "p"], ["--rdzv-conf==1", "p"], ["--rdzv-backend=zeus", "p"], ["--tee=4", "p"], ["--tee=0:4", "p"],
    ["--redirects=x", "p"], ["--local-ranks-filter=x", "p"], ["-m", "--no-python", "p"], ["--logs-specs=x", "p"],
    ["--numa-binding=x", "p"], ["--no-p"], ["--log", "x", "p"], ["--ma", "x", "p"], ["--event-log-handler=x", "p"],
    ["--rdzv-endpoint=h:99999", "--nnodes=1", "p"], ["--signals-to-handle=SIGKILL", "p"],
]

ACCEPTED = [
    ["--nnodes=1", "p"], ["--nnodes", "1:1", "p"], ["--redirect=0", "p"], ["-r0", "p"], ["-t", "0", "p"], ["--tee=5:1", "p"],
    ["--local-ranks-filter=0,9", "p"], ["--signals-to-handle=SIGNOPE,SIGTERM", "p"], ["--rdzv-conf=colour=red", "p"],
    ["--event-log-handler=dynamic_rendezvous", "p"], ["--max-restarts=0", "--", "p"], ["--start-method=spawn", "p"],
    ["--monitor-interval=.5", "p"], ["--nproc-per-node=1", "p", "--nproc-per-node=x"], ["--standalone", "p"],
]
# What one takes and the other does not, and why.
OURS_TAKES = {
    ("--nproc", "1", "p"): "torchrun finds two spellings of one flag ambiguous",
    ("--redirects=11:1", "p"): "torchrun takes ranks of one digit only",
}
