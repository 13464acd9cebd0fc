#pragma once

#include <memory>

#include "config/launch_config.hpp"
#include "lockstep/core/environment.hpp"
#include "rendezvous/coordinator_client.hpp"
#include "rendezvous/job_secret.hpp"

namespace lockstep::launch {

/// The client of the coordinator of the job: the coordinator is started here where this node hosts it, else
/// it is looked for at the endpoint (which goes on in the background; see RemoteCoordinatorClient).
///
/// Who hosts it: the only node of a job; node rank 0 of a static rendezvous; for c10d the first launcher on
/// the host that the endpoint names (--rdzv-conf is_host says it where that cannot be told); for slurm the
/// first node of the step. It listens at the endpoint's own address only: on the loopback interface where one
/// host is the whole job.
///
/// Throws UsageError and CommunicationError that say what to change: a port in use and by whom, a name that
/// does not resolve. Starts threads: a ProcessSupervisor must be there. One of the job's end signals that
/// comes meanwhile ends the look-up of names; the agent acts on it.
std::unique_ptr<CoordinatorClient> open_coordinator(const LaunchConfig& config, const JobSecret& secret);

/// The secret of the job. Throws UsageError.
JobSecret secret_for(const LaunchConfig& config, const Environment& environment);

}  // namespace lockstep::launch
