package store

import (
	"context"
	"math"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/internal/message"
)

// Work claims tasks and stores their results. Consumers use it.
type Work interface {
	// Claim claims the tasks of the tickets for worker, in one statement per batch, and returns one verdict per ticket.
	// It claims only wanted tasks that no closed gate concerns. With into IntoBuffer, the claimed tasks are Buffered.
	//
	// Claim is idempotent. If the worker already owns a task at the attempt of the ticket, the task is Claimed again,
	// because the answer to an earlier call may have been lost. The caller knows which tasks it has. The second of two
	// equal tickets in one call is Stale.
	//
	// Claim returns ErrFenced, and claims nothing, if the worker is not live.
	Claim(ctx context.Context, worker holdfast.WorkerID, wanted []Wanted, tickets []message.Ticket, into Place) ([]Claim, error)
	// Held returns the tasks, without payload, that are running under the worker and whose ids are in (after, through],
	// in any order. It may read all tasks in that range. It may omit tasks that start or end during the call.
	Held(ctx context.Context, worker holdfast.WorkerID, after, through holdfast.TaskID) ([]holdfast.Task, error)
	// Apply applies the transitions and reports for each whether it was accepted. It refuses a transition, without
	// effect, if the state, the attempt or the owner of the task has changed since the call of Settle. A recorded
	// transition adds a row to the attempts of the task. If Apply cancels a running task, the next renewal of its
	// worker reports that. Apply stores the effects of the accepted transitions. DispatchOutbox publishes the tickets of
	// their next tasks. Apply returns *KeyHeldError as Insert does, and then it has applied no transition.
	Apply(ctx context.Context, moves []holdfast.Transition) ([]bool, error)
	// ApplyTx is Apply for one transition in a transaction of the caller. It neither commits nor rolls back. If it
	// returns true, the transition takes effect if and only if tx commits, and until then no one else can change the
	// task. After an error the caller must roll back.
	ApplyTx(ctx context.Context, tx Tx, move holdfast.Transition) (bool, error)
}

// Tickets records sentinels that a consumer receives, and tickets whose tasks it does not claim.
type Tickets interface {
	// Park makes ready tasks wait at the same attempt, without counting a deferral, and stores why. The first park of a
	// task at an attempt lasts wait, which is at most LongestPark. Each further park lasts twice as long, up to
	// LongestPark. Park ignores tasks that have changed since.
	Park(ctx context.Context, tickets []message.Ticket, wait time.Duration, why string) error
	// Block blocks ready tasks at a gate, at the same attempt and without counting a deferral. If the gate has opened,
	// the tasks become due at once instead. Block ignores tasks that have changed since.
	Block(ctx context.Context, gate ID, tickets []message.Ticket) error
	// Unpark makes the parked tasks of the types in the queues due at once. No queues means all queues. The next park
	// of such a task is treated as its first. Unpark works in small steps. After an error some tasks are changed, and
	// another call changes the rest. It returns the number of changed tasks.
	Unpark(ctx context.Context, types, queues []string) (int, error)
	// Handlers returns the types that live workers handle, without duplicates, in any order. It omits the workers that
	// drain.
	Handlers(ctx context.Context) ([]Handler, error)
	// AddQueues adds subqueues and type queues to the known queues, so that a janitor declares their AMQP queues.
	AddQueues(ctx context.Context, names []string) error
	// PassedOn records that the caller is about to publish the tickets to a requeue queue or a type queue. The sentinels
	// of a queue prove nothing about these. So UnticketLost treats these tasks as requeued, and as ticketed now. If a
	// task was recorded less than ten seconds ago, it may keep that time. PassedOn ignores tasks that have changed
	// since.
	PassedOn(ctx context.Context, tickets []message.Ticket) error
	// Drained records that a sentinel of a queue was delivered now. The caller must not report a redelivered sentinel,
	// because returned tickets may be behind it. Drained ignores a sentinel that is not newer than the newest recorded
	// one, or whose time is in the future.
	Drained(ctx context.Context, s message.Sentinel) error
}

// LongestPark is the longest wait of a parked task.
const LongestPark = 10 * time.Minute

// Handler is a type that a live worker handles.
type Handler struct {
	Type  string
	Queue string // a queue that the worker takes; empty means every queue
}

// Takes reports whether the handler runs tasks of the type in the queue.
func (h Handler) Takes(queue, taskType string) bool {
	return h.Type == taskType && (h.Queue == "" || h.Queue == queue)
}

// Wanted is a task type that a caller runs. Each type appears once in a call.
type Wanted struct {
	Type string
	// MostCrashes is the maximum number of crashes. A task with more crashes is a LastChance.
	MostCrashes int
}

// AnyCrashes is a MostCrashes that allows any number of crashes.
const AnyCrashes = math.MaxInt32

// AnyOf returns a Wanted for each type, with AnyCrashes.
func AnyOf(types ...string) []Wanted {
	wanted := make([]Wanted, len(types))
	for i, t := range types {
		wanted[i] = Wanted{t, AnyCrashes}
	}
	return wanted
}

// Place selects where a worker puts claimed tasks.
type Place uint8

// The places.
const (
	// IntoExecutors means that an executor is reserved for each task. The task starts when the claim returns.
	IntoExecutors Place = iota
	// IntoBuffer means that the tasks may wait for an executor. If their worker crashes, no crash is charged to them.
	IntoBuffer
)

// Verdict is the result of a claim for one ticket.
type Verdict uint8

// The verdicts.
const (
	Stale      Verdict = iota // the task is final, not due yet, or at a later attempt; drop the ticket
	Claimed                   // the caller owns the task
	Contended                 // the task runs under another worker; list it in a manifest of that worker
	Ahead                     // the row is missing or at an earlier attempt: the store lost commits; rescue the ticket
	Blocked                   // a closed gate concerns the task; block it
	Unhandled                 // the type is not wanted; park the task
	LastChance                // the task had too many crashes; claim it to run it exclusively
)

// Claim is a verdict with its data.
type Claim struct {
	Verdict Verdict
	Task    *holdfast.Task    // complete if Claimed; only ID, Type and Queue if Blocked, Unhandled or LastChance; else nil
	Owner   holdfast.WorkerID // the worker that runs the task, if Contended
	Gate    ID                // a closed gate that concerns the task, if Blocked
	Probe   bool              // if Claimed: the task has a permit of a breaker; see Breakers
	Now     time.Time         // the time of the store
}
