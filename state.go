package holdfast

import "slices"

// State is where a task stands. The zero value is not a state.
type State string

// The states of a task. Scheduled, retrying and queued are views of Ready.
const (
	Ready     State = "ready"     // waits for its time, its ticket or a free worker
	Running   State = "running"   // claimed by one run
	Done      State = "done"      // finished with success; final
	Dead      State = "dead"      // gave up; waits for a person
	Cancelled State = "cancelled" // stopped on request; final
	Archived  State = "archived"  // a dead task somebody has put away
)

// States returns every state, in the order people list them.
func States() []State {
	return []State{Ready, Running, Done, Dead, Cancelled, Archived}
}

// Valid reports whether s is one of the known states.
func (s State) Valid() bool { return slices.Contains(States(), s) }

// Final reports whether no worker will touch a task in this state again unless
// an operator asks for it.
func (s State) Final() bool { return s != Ready && s != Running && s.Valid() }

// Event is what happens to a task; it decides the next state.
type Event string

// The events of a task's life.
const (
	EventClaim     Event = "claim"     // a run took it
	EventComplete  Event = "complete"  // the handler returned nil
	EventRetry     Event = "retry"     // failed, will be tried again; the failure is counted
	EventDefer     Event = "defer"     // asked to come back later; nothing counted against it
	EventInterrupt Event = "interrupt" // handed back by a draining worker; nothing counted
	EventCrash     Event = "crash"     // its worker is gone; the crash is counted
	EventGiveUp    Event = "give_up"   // a limit was reached or the error is permanent
	EventRequeue   Event = "requeue"   // an operator sends a dead or cancelled task again
	EventCancel    Event = "cancel"    // an operator or the handler stops it
	EventArchive   Event = "archive"   // an operator puts a dead task away
	EventRestore   Event = "restore"   // an operator takes it back out
)

// Move is one row of the state table.
type Move struct {
	From []State
	To   State
}

// moves is the state machine. Nothing else in the module decides a state.
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
}

// Moves returns a copy of the state table: for every event, the states it may
// leave and the state it leads to. Documentation and tests are made from it.
func Moves() map[Event]Move {
	table := make(map[Event]Move, len(moves))
	for event, move := range moves {
		table[event] = Move{slices.Clone(move.From), move.To}
	}
	return table
}

// Allowed reports whether event may happen to a task in state from.
func Allowed(event Event, from State) bool {
	return slices.Contains(moves[event].From, from)
}
