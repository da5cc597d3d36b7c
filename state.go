package holdfast

import "slices"

// State is the state of a task. The zero value is not a state.
type State string

// The states of a task. Scheduled, retrying and queued are views of Ready.
const (
	Ready     State = "ready"     // waits for its time, its ticket or a free worker
	Running   State = "running"   // claimed by one worker
	Done      State = "done"      // succeeded; final
	Dead      State = "dead"      // failed for good; waits for an operator
	Cancelled State = "cancelled" // stopped on request; final
	Archived  State = "archived"  // a dead task that an operator has archived
)

// States returns every state, in the order in which lists show them.
func States() []State {
	return []State{Ready, Running, Done, Dead, Cancelled, Archived}
}

// Valid reports whether s is a known state.
func (s State) Valid() bool { return slices.Contains(States(), s) }

// Final reports whether a task in this state stays in it unless an operator changes it.
func (s State) Final() bool { return s != Ready && s != Running && s.Valid() }

// Event is something that happens to a task. It determines the next state.
type Event string

// The events of a task's life.
const (
	EventClaim     Event = "claim"     // a worker takes the task
	EventComplete  Event = "complete"  // the handler returns nil
	EventRetry     Event = "retry"     // the attempt fails; the failure is counted
	EventDefer     Event = "defer"     // the handler defers the task; no failure is counted
	EventInterrupt Event = "interrupt" // the worker hands the task back; nothing is counted
	EventCrash     Event = "crash"     // the worker dies; the crash is counted
	EventGiveUp    Event = "give_up"   // a limit is reached, or the error is permanent
	EventRequeue   Event = "requeue"   // an operator retries a dead or cancelled task
	EventCancel    Event = "cancel"    // an operator or the handler cancels the task
	EventArchive   Event = "archive"   // an operator archives a dead task
	EventRestore   Event = "restore"   // an operator restores an archived task
	EventUndo      Event = "undo"      // an operator takes back the retry of a dead task that no worker has claimed
)

// Move is one row of the state table.
type Move struct {
	From []State
	To   State
}

// moves is the state machine. No other part of the module decides a state.
var moves = map[Event]Move{
	EventClaim:     {[]State{Ready}, Running},
	EventComplete:  {[]State{Running}, Done},
	EventRetry:     {[]State{Running}, Ready},
	EventDefer:     {[]State{Running}, Ready},
	EventInterrupt: {[]State{Running}, Ready},
	EventCrash:     {[]State{Running}, Ready},
	EventGiveUp:    {[]State{Running}, Dead},
	EventRequeue:   {[]State{Dead, Cancelled}, Ready},
	EventCancel:    {[]State{Ready, Running, Dead}, Cancelled},
	EventArchive:   {[]State{Dead}, Archived},
	EventRestore:   {[]State{Archived}, Dead},
	EventUndo:      {[]State{Ready}, Dead},
}

// Moves returns a copy of the state table: for each event, the states in which it is allowed and the state to which it
// leads.
func Moves() map[Event]Move {
	table := make(map[Event]Move, len(moves))
	for event, move := range moves {
		table[event] = Move{slices.Clone(move.From), move.To}
	}
	return table
}

// Allowed reports whether event is allowed for a task in state from.
func Allowed(event Event, from State) bool {
	return slices.Contains(moves[event].From, from)
}
