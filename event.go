package holdfast

import "time"

// Observer receives observations, for metrics and tests. Observe must be safe for concurrent use and return quickly.
type Observer interface {
	Observe(Observation)
}

// Observation describes one event. If Count is above 1, it describes as many equal events. Fields that do not apply are
// zero.
type Observation struct {
	Kind  ObservationKind
	Queue string
	Type  string
	Event Event         // outcome of the attempt, with ObservedSettled and ObservedRecovered
	Count int           // at least 1
	Took  time.Duration // duration of the event
	Late  time.Duration // time since the event was due
}

// ObservationKind is the kind of an observation.
type ObservationKind string

// The kinds of observations.
const (
	ObservedEnqueued    ObservationKind = "enqueued"    // tasks stored by a producer
	ObservedDuplicate   ObservationKind = "duplicate"   // tasks refused because of their unique key
	ObservedPublished   ObservationKind = "published"   // tickets confirmed by the broker
	ObservedClaimed     ObservationKind = "claimed"     // tasks claimed; Late is the time since they were due
	ObservedStale       ObservationKind = "stale"       // tickets that were no longer needed
	ObservedContended   ObservationKind = "contended"   // tickets of tasks that another worker runs
	ObservedParked      ObservationKind = "parked"      // tasks parked because no live worker has a handler
	ObservedPassedOn    ObservationKind = "passed_on"   // tickets passed on to workers that handle their type
	ObservedBlocked     ObservationKind = "blocked"     // tasks blocked at a gate
	ObservedQuarantined ObservationKind = "quarantined" // malformed messages moved to the quarantine
	ObservedUnread      ObservationKind = "unread"      // messages of a newer version moved to the unread queue
	ObservedSettled     ObservationKind = "settled"     // results accepted; Took is the time of the handler
	ObservedRefused     ObservationKind = "refused"     // results refused because they came too late
	ObservedStuck       ObservationKind = "stuck"       // handlers that began to ignore the end of their contexts
	ObservedAbandoned   ObservationKind = "abandoned"   // attempts given up because of stuck handlers
	ObservedLeaseLost   ObservationKind = "lease_lost"  // a worker that stopped itself or was fenced
	ObservedFenced      ObservationKind = "fenced"      // workers fenced by this janitor
	ObservedRecovered   ObservationKind = "recovered"   // tasks handed back from a dead worker
	ObservedRearmed     ObservationKind = "rearmed"     // manifests published again at the tail of their queue
	ObservedRepaired    ObservationKind = "repaired"    // tasks whose ticket was missing
	ObservedReleased    ObservationKind = "released"    // blocked tasks made due after their gate had opened
	ObservedPruned      ObservationKind = "pruned"      // old rows deleted
	ObservedPlanFailed  ObservationKind = "plan_failed" // failed steps of schedules, sources, shard jobs and batches
)

// Discard is an Observer that does nothing.
var Discard Observer = discard{}

type discard struct{}

func (discard) Observe(Observation) {}
