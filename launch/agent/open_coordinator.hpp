#pragma once

#include <memory>

#include "config/launch_config.hpp"
#include "lockstep/core/environment.hpp"
#include "rendezvous/coordinator_client.hpp"
#include "rendezvous/job_secret.hpp"

namespace lockstep::launch {

/// Creates the client of the job's coordinator. If this node hosts the coordinator, it is started here;
/// otherwise the client connects to the endpoint in the background (see RemoteCoordinatorClient).
///
/// The host is the only node of a job; node rank 0 of a static rendezvous; for c10d the first launcher on the
/// host that the endpoint names (--rdzv-conf is_host, if that cannot be determined); for slurm the first node
/// of the step. It listens on the endpoint's own address only, which is loopback if the whole job is on one
/// host. It listens on every interface if the endpoint's name means loopback on this host only, or none of
/// its addresses, or if --local-addr is a different address.
///
/// If the endpoint's name does not resolve yet, the client keeps asking for it until the join timeout, and
/// becomes the host if it is to be. Meanwhile the agent says what it waits for and handles signals.
///
/// Throws UsageError or CommunicationError that says what to change, such as a port in use and by which
/// program. Starts threads, so the ProcessSupervisor must exist before. `config` must outlive the client.
std::unique_ptr<CoordinatorClient> open_coordinator(const LaunchConfig& config, const JobSecret& secret);

/// The secret of the job. Throws UsageError.
JobSecret secret_for(const LaunchConfig& config, const Environment& environment);

}  // namespace lockstep::launch
