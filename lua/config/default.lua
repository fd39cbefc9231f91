-- Every option of gimbal with its default. Copy what you change into a file of your own and pass it with --config FILE.
-- Command line > GIMBAL_* environment > config file > default; gimbal serve --print-config says where each value came from.
return {
    -- The model

    -- Hugging Face model directory
    -- model = "DIR",
    -- name reported to clients (default: the directory's name)
    -- served_model_name = "NAME",
    -- type of the weights in memory; auto is the checkpoint's (auto, bfloat16, float32)
    dtype = "auto",
    -- chat template: auto, chatml, qwen3 or a .lua file
    chat_template = "auto",
    -- longest sequence in tokens (default: the model's)
    max_model_len = 0,

    -- How it is spread

    -- engines: attention replicas with their own queue and KV cache; also -dp
    data_parallel_size = 1,
    -- ranks holding experts (default: data-parallel x tensor-parallel); also -ep
    expert_parallel_size = 0,
    -- ranks of one engine (default: from the other two, else 1); also -tp
    tensor_parallel_size = 0,
    -- cuda: where ranks are: all on one GPU, or with a GPU each on threads or in processes; auto is threads where there are enough GPUs (auto, one, threads, processes)
    distributed_executor_backend = "auto",
    -- cuda: how tokens travel between GPUs: all-gather and reduce-scatter, send and receive, or stores into each other's memory (auto, agrs, sendrecv, lsa)
    all2all_backend = "auto",
    -- cuda: GPUs that wait longer for each other give up, and their engines are down
    collective_timeout_ms = 30000,

    -- What computes it

    -- what runs the model; auto is cuda where it can run, else cpu; cuemu runs the CUDA code on the CPU, slowly, to check it (auto, cpu, cuda, cuemu)
    backend = "auto",
    -- cuda: launch the kernels of a decode step one by one instead of as one graph
    enforce_eager = false,
    -- cuda: the products of experts: wgmma on Hopper, else mma; cublas is a call for each expert, slow and not batch-invariant, to compare with (auto, wgmma, mma, cublas)
    cuda_experts = "auto",
    -- compute threads (default: the CPUs this process may use)
    threads = 0,
    -- instruction set of the kernels; auto takes the fastest, measured at start (auto, scalar, avx2, avx512f, avx512_bf16)
    cpu_kernels = "auto",
    -- KV cache of all engines together, at most a quarter of memory
    kv_cache_memory = "512M",
    -- memory of the expert ranks: one for all, where moving an expert changes a pointer, or each its own, where bytes move (shared, private)
    rank_memory = "shared",
    -- requests that begin alike share their full KV blocks
    enable_prefix_caching = true,

    -- How requests are served

    -- running requests per engine
    max_num_seqs = 64,
    -- tokens computed per engine and round
    max_num_batched_tokens = 512,
    -- live requests in the whole server
    max_queue = 4096,
    -- waiting longer than this promotes a request
    aging_ms = 5000,
    -- a trace older than this makes selection fall back to ordered dispatch
    stale_after_ms = 1000,
    -- rounds in a profiling window of expert counts
    window_rounds = 64,
    -- a window ends earlier when it has lasted so long (default: rounds only)
    window_ms = 0,
    -- windows between two rearrangements of experts over ranks; 0: never
    rearrange_every = 4,
    -- what a placement of experts is worth: communication, imbalance and moves (paper, balanced, latency)
    placement_weights = "paper",
    -- experts stay unless their placement gets better by at least this share
    rearrange_min_gain = 0.01,
    -- most experts moved by one rearrangement
    rearrange_max_moves = 192,
    -- most bytes moved by one rearrangement
    rearrange_max_bytes = "4G",
    -- slots of each rank and layer for copies of experts, placed by who uses them
    spare_slots = 0,
    -- most bytes of moving experts that are copied beside one round
    migration_bytes = "1M",
    -- rounds between moves of random experts in every layer, to try migration out (default: never)
    force_migration_every = 0,
    -- seed for requests without their own
    seed = 0,

    -- Who decides

    -- one policy for all that it can decide, before the defaults of the next options: a shipped name or a .lua file
    -- policy = "NAME",
    -- policy for select_engine: a shipped name or a .lua file
    policy_select = "gimbal",
    -- policy for order_queue: a shipped name or a .lua file
    policy_order = "gimbal",
    -- policy for score_expert and placement_cost: builtin (search with a proved bound), a shipped name or a .lua file
    policy_place = "builtin",
    -- CPU time after which a script is stopped: one select_engine
    policy_select_ms = 2,
    -- the same: one order_queue
    policy_order_ms = 5,
    -- the same: a whole rearrangement of experts
    policy_place_ms = 250,
    -- the same: running the file itself
    policy_load_ms = 100,
    -- the same: export or import of state at a swap
    policy_carry_ms = 20,
    -- memory that a script may hold
    policy_memory = "32M",
    -- memory that a script which places experts may hold
    policy_place_memory = "64M",
    -- load every *.lua policy of this directory at start
    -- policy_dir = "DIR",
    -- for development: load a file of policy_dir anew when it changes; it decides at once where a policy of its name does
    policy_watch = false,
    -- a policy is checked in a process of its own before policy_load takes it; what fails there is not loaded
    policy_check = true,
    -- keep loaded policies and changes of what decides in this directory, and restore what decided last at start
    -- policy_store = "DIR",
    -- record what select_engine and order_queue see, for gimbal policy diff
    -- journal = "FILE",
    -- most bytes of the journal: half of them in FILE, what came before in FILE.1
    journal_size = "64M",

    -- Where it listens

    -- Unix socket for msgpack-RPC, mode 0600 (default without rpc_port: $XDG_RUNTIME_DIR/gimbal.sock or ~/.gimbal.sock)
    -- socket = "PATH",
    -- address for msgpack-RPC over TCP
    rpc_host = "127.0.0.1",
    -- TCP port for msgpack-RPC; 0 picks a free one, -1 turns TCP off
    rpc_port = -1,
    -- clients over TCP must present the key in this file
    -- api_key_file = "FILE",
    -- admin methods over TCP need the token in this file; without it they are Unix-socket only
    -- admin_token_file = "FILE",
    -- how long SIGTERM waits for open requests
    shutdown_timeout_s = 30,

    -- What it says

    -- least level that is logged to standard error (debug, info, warn, error)
    log_level = "info",
    -- one line of text or one JSON object for each log entry (text, json)
    log_format = "text",
}
