package store

import (
	"context"
	"time"
)

// Breakers stops the tasks of a target that fails or requests a pause.
//
// A breaker is a gate of the kind [GateBreaker] for one target. Workers report the answers of targets. The first report
// of a fault trips the breaker: the gate is closed for all tasks of the target, except for probes. A probe is an
// attempt with a permit of the breaker; see Limits about permits. Gates.ReleaseBlocked gives the first permits to tasks
// that have never been tried, the newest and the oldest among them, and later permits to the others. It allows a few
// probes at a time, and then more and more if the target answers the probes. At last the gate opens. Package
// internal/breaker has the rules, and package internal/permit the order of the probes.
//
// A blocked task uses up no attempt. A probe is an attempt like any other.
type Breakers interface {
	// ReportTargets records reports about targets, one for each target. A report changes nothing if its target has no
	// breaker and it does not trip one. If the answer to a call is lost and the call is repeated, the next probe may be
	// late, or more probes may run. It is otherwise harmless.
	//
	// When ReportTargets has tripped a breaker, later claims take no task of the target without a permit. Each trip and
	// each reset adds an audit entry with the surface [ByWorker]. ReportTargets returns ErrInvalid, and changes nothing,
	// if a report is not valid.
	ReportTargets(ctx context.Context, reports []TargetReport) error
}

// TargetReport reports what a worker has observed of a target since its last report.
type TargetReport struct {
	Target string // in the form of holdfast.TargetOf
	// Trip requests that the breaker trips, because the worker has observed too many faults in succession.
	Trip bool
	// Refused means that the target has requested a pause. It trips the breaker, too. Pause is the requested time, or 0
	// if the target gave none.
	Refused bool
	Pause   time.Duration
	// Passed counts the probes whose target answered, Failed those with a fault of the target, and Rejected those with a
	// fault that may be that of the task alone; see holdfast.MessageFault.
	Passed, Failed, Rejected int
	// Cause describes the latest fault for people. It is subject to the limit of [Actor.Reason].
	Cause string
}

// Validate returns ErrInvalid if the target is not valid or the cause is too long.
func (r TargetReport) Validate() error {
	if err := (Subject{Target: r.Target}).Validate(); err != nil {
		return err
	}
	return r.TrippedBy().Validate()
}

// TrippedBy is the actor in the audit entry of a trip.
func (r TargetReport) TrippedBy() Actor {
	return Actor{Name: string(ByWorker), Surface: ByWorker, Reason: r.Cause}
}

// The actors in the audit entries of resets that no person has requested.
var (
	ResetByWorker  = Actor{Name: string(ByWorker), Surface: ByWorker, Reason: "the target has answered the probes"}
	ResetByJanitor = Actor{Name: string(Janitor), Surface: Janitor, Reason: "the breaker has blocked no task for a long time"}
)

// BreakerState is the state of a breaker.
type BreakerState string

// The states of a breaker, in the terms of circuit breakers.
const (
	BreakerOpen     BreakerState = "open"      // no task starts until ProbeAt
	BreakerHalfOpen BreakerState = "half-open" // at most HalfOpenProbes at a time
	BreakerRamping  BreakerState = "ramping"   // more probes at a time
)

// HalfOpenProbes is the number of different tasks that a half-open breaker tries.
const HalfOpenProbes = 3

// Breaker is the state of a gate of the kind GateBreaker.
type Breaker struct {
	ProbeAt time.Time     `json:"probe_at"` // no probe starts before this time
	Wait    time.Duration `json:"-"`        // how long it stays open after a fault without a requested pause
	Probes  int           `json:"probes"`   // maximum number of simultaneous probes
}

// State returns the state at the time now of the store's clock.
func (b *Breaker) State(now time.Time) BreakerState {
	switch {
	case b.ProbeAt.After(now):
		return BreakerOpen
	case b.Probes <= HalfOpenProbes:
		return BreakerHalfOpen
	}
	return BreakerRamping
}
