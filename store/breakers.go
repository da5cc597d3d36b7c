package store

import (
	"context"
	"time"
)

// Breakers stops the tasks of a target that fails or asks for a pause.
//
// A breaker is a gate of the kind [GateBreaker] for one target. Workers report how targets answer. The first report of
// a fault trips the breaker: the gate is closed for all tasks of the target, except for probes. A probe is an attempt
// with a permit of the breaker; see Limits about permits. Gates.ReleaseBlocked gives the permits, in the order in which
// the tasks were blocked: first to one probe at a time, and then to more and more if the probes find that the target
// answers. At last the gate opens. Package internal/breaker has the rules.
//
// A blocked task uses up no attempt. A probe is an attempt like any other.
type Breakers interface {
	// ReportTargets reports how targets answer, one report for each target. Reports about a target without a breaker that
	// do not trip one change nothing. A report that is made twice, because the answer to the first call was lost, may
	// delay the next probe or let more probes run; it does no other harm.
	//
	// When ReportTargets has tripped a breaker, claims that begin later take no task of the target without a permit.
	ReportTargets(ctx context.Context, reports []TargetReport) error
}

// TargetReport is what a worker has seen of a target since its last report.
type TargetReport struct {
	Target string // in the form of holdfast.TargetOf
	// Trip means that the worker has seen so many faults in succession that it trips the breaker.
	Trip bool
	// Refused means that the target has asked for a pause. It trips the breaker, too. Pause is how long the target asks
	// for; 0 means that it does not say.
	Refused bool
	Pause   time.Duration
	// Passed and Failed are the numbers of probes whose target answered, and of those with a fault.
	Passed, Failed int
	// Cause describes the latest fault for people.
	Cause string
}

// BreakerState is how far a breaker has come.
type BreakerState string

// The states of a breaker, in the terms of circuit breakers.
const (
	BreakerOpen     BreakerState = "open"      // no task starts until ProbeAt
	BreakerHalfOpen BreakerState = "half-open" // one probe at a time
	BreakerRamping  BreakerState = "ramping"   // several probes at a time
)

// Breaker is the state of a gate of the kind GateBreaker.
type Breaker struct {
	ProbeAt time.Time     `json:"probe_at"` // no probe starts before this time
	Wait    time.Duration `json:"-"`        // from the next fault to the probe after it, unless the target asks for another time
	Probes  int           `json:"probes"`   // the highest number of probes at the same time
}

// State returns the state at a time of the store.
func (b *Breaker) State(now time.Time) BreakerState {
	switch {
	case b.ProbeAt.After(now):
		return BreakerOpen
	case b.Probes == 1:
		return BreakerHalfOpen
	}
	return BreakerRamping
}
