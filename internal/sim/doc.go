// Package sim runs the real producer, consumer, janitor and domain code over a simulated store, broker, clock
// and network, breaks whatever can break, and checks after every step that no task can get lost.
//
// A run is decided by its seed. [NewPlan] draws from it the processes, the tasks with what their handlers do, and
// the faults; a second stream of random numbers decides how long each message takes. The processes run in a bubble of
// testing/synctest, whose time passes only when all of them wait. Every question to the store
// and every frame to or from the broker is a step: it waits in one list until its moment, takes
// place alone, and then the invariants are checked. So a process can be killed between any two of its steps, and a
// question can be answered late, never, or by nobody, though it was carried out.
//
// With the runtime of package patch a seed replays exactly, in any process on any machine of the same
// architecture. Without it nearly so: the order in which goroutines of one process reach their next step is then the scheduler's.
//
// # What it assumes, and does not show
//
// The store and the broker are models, held to the same suites as the real ones. A stopped process is one that neither sends nor
// hears nor ends a handler; its timers run on. Nothing is said of speed.
//
//	plan.go       what happens in a run
//	world.go      the list of steps and the clock
//	network.go    the ways between processes, store and broker
//	process.go    processes, and what handlers do
//	faults.go     what breaks
//	check.go      the invariants
//	check_fences.go  those of runs that are declared dead
//	shrink.go     the smallest plan that still fails
package sim
