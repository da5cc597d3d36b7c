package holdfast

import "time"

// Observer is told what happens, for metrics and tests. Calls come from many
// goroutines at once and must return quickly.
type Observer interface {
	Observe(Observation)
}

// Observation is one thing that happened. Fields that do not apply are zero.
type Observation struct {
	Kind  ObservationKind
	Lane  string
	Type  string
	Event Event         // with ObservedSettled: what became of the attempt
	Count int           // how many; at least 1
	Took  time.Duration // of the thing itself
	Late  time.Duration // between the moment it was due and now
}

// ObservationKind names what happened.
type ObservationKind string

// What can be observed.
const (
	ObservedEnqueued    ObservationKind = "enqueued"    // tasks stored by a producer
	ObservedDuplicate   ObservationKind = "duplicate"   // refused for their unique key
	ObservedPublished   ObservationKind = "published"   // tickets confirmed by the broker
	ObservedClaimed     ObservationKind = "claimed"     // tasks taken; Late since they were due
	ObservedStale       ObservationKind = "stale"       // tickets that were not needed any more
	ObservedContended   ObservationKind = "contended"   // tickets of tasks another run holds
	ObservedParked      ObservationKind = "parked"      // tasks with no handler here
	ObservedQuarantined ObservationKind = "quarantined" // malformed messages put aside
	ObservedSettled     ObservationKind = "settled"     // results accepted; Took is the handler's time
	ObservedRefused     ObservationKind = "refused"     // results that came too late
	ObservedLeaseLost   ObservationKind = "lease_lost"  // a run that stopped itself or was fenced
	ObservedFenced      ObservationKind = "fenced"      // runs declared gone by this janitor
	ObservedRecovered   ObservationKind = "recovered"   // tasks handed back from a gone run
	ObservedRearmed     ObservationKind = "rearmed"     // manifests put to the tail again
	ObservedRepaired    ObservationKind = "repaired"    // tasks whose ticket was missing
	ObservedPruned      ObservationKind = "pruned"      // old rows deleted
)

// Discard is an Observer that does nothing.
var Discard Observer = discard{}

type discard struct{}

func (discard) Observe(Observation) {}
