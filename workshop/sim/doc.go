// Package sim runs the real producer, consumer, janitor and domain code over a simulated store, broker, clock and
// network. It injects faults. After every step it checks that no task can get lost.
//
// A seed decides everything that happens in a simulation. [NewPlan] draws the processes, the tasks, the behavior of
// their handlers, and the faults from the seed. A second random stream decides how long each message takes. The
// processes run in a bubble of testing/synctest. Time passes in the bubble only while all goroutines wait.
//
// Every request to the store and every frame to or from the broker is a step. All steps wait in one list. The driver
// runs each step at its time, one step at a time, and then checks the invariants. Therefore a process can be killed
// between any two of its steps. The answer to a request can arrive late or never, even if the server has carried out
// the request.
//
// With the runtime of package patch, a seed replays exactly in any process on any machine of the same architecture.
// Without it, the Go scheduler decides the order in which the goroutines of one process reach their next steps.
//
// # Limits
//
// The store and the broker are models; they pass the same test suites as the real ones. A stopped process sends and
// receives nothing, and its handlers do not return, but its timers keep running. The simulator does not measure speed.
//
//	plan.go          the processes, tasks and faults of a simulation
//	world.go         the list of steps and the driver
//	network.go       the connections between the processes, the store and the broker
//	process.go       the processes and their handlers
//	machine.go       the process ids of the simulated machines
//	faults.go        the faults
//	operations.go    the person who starts operations
//	pauses.go        the person who pauses queues, types and keys
//	limits.go        the person who sets limits
//	targets.go       targets that fail, and tasks for them
//	orders.go        ordered tasks, and the person who changes dead ones
//	topics.go        tasks with topics
//	once.go          tasks that run at most once
//	effects.go       next tasks, checkpoints and CompleteTx in handlers
//	run.go           one simulation and its result
//	shrink.go        the search for the smallest plan that still fails
//
// The invariants:
//
//	check.go             executions, and the states of tasks
//	check_tickets.go     tickets and manifests
//	check_fences.go      fenced workers
//	check_explain.go     what package explain predicts
//	check_operations.go  operations
//	check_gates.go       gates, and deadlines that pass while a task waits
//	check_limits.go      limits and permits
//	check_breakers.go    breakers and their probes
//	check_trips.go       when a worker trips a breaker
//	check_order.go       ordered tasks
//	check_topics.go      topics, their slots and cursors
//	check_once.go        tasks that run at most once
//	check_effects.go     outputs, next tasks and checkpoints
package sim
