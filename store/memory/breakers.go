package memory

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/holdfastq/holdfast/internal/breaker"
	"github.com/holdfastq/holdfast/store"
)

// ReportTargets implements store.Breakers.
func (c *Client) ReportTargets(ctx context.Context, reports []store.TargetReport) error {
	if len(reports) == 0 {
		return nil
	}
	reports = slices.Clone(reports)
	step := Step{Op: "ReportTargets"}
	for i, r := range reports {
		if err := r.Validate(); err != nil {
			return fmt.Errorf("report %d of %d: %w", i+1, len(reports), err)
		}
		step.names = append(step.names, fmt.Sprintf("%s trip %v refused %v passed %d failed %d rejected %d", r.Target, r.Trip, r.Refused, r.Passed, r.Failed, r.Rejected))
	}
	return c.do(ctx, step, func(now time.Time) error {
		for _, r := range reports {
			c.store.report(now, r)
		}
		return nil
	})
}

// report changes the breaker of a target as a report requests.
func (s *Store) report(now time.Time, r store.TargetReport) {
	i := slices.IndexFunc(s.db.gates, func(g gate) bool { return !g.lifted && g.Kind == store.GateBreaker && g.Target == r.Target })
	if i < 0 {
		if state := breaker.Next(now, nil, r, false, s.db.allExecutors()); state != nil {
			s.db.last.gate++
			tripped := gate{Gate: store.Gate{
				ID: store.ID(s.db.last.gate), Kind: store.GateBreaker, Subject: store.Subject{Target: r.Target}, ClosedAt: now,
				Actor: r.TrippedBy(),
			}}
			tripped.Reason = clean(r.Cause)
			tripped.setBreaker(state)
			s.db.gates = append(slices.Clone(s.db.gates), tripped)
			s.recordAudit(store.AuditEntry{At: now, Actor: tripped.Actor, Action: store.ActionTrip, Subject: tripped.String(), After: tripped.Version()})
		}
		return
	}
	g := &s.db.gates[i]
	state := breaker.Next(now, g.breakerState(), r, s.db.blockedAt(g.ID) > 0, s.db.allExecutors())
	if state == nil {
		s.lift(store.ResetByWorker, g.Gate, now)
		return
	}
	s.db.gates = slices.Clone(s.db.gates)
	g = &s.db.gates[i]
	g.setBreaker(state)
	g.Reason = cmp.Or(clean(r.Cause), g.Reason)
	for i := range s.db.buckets {
		if b := &s.db.buckets[i]; b.Gate == g.ID {
			b.nextAt = now
		}
	}
}

// breakerState returns the state of a breaker.
func (g *gate) breakerState() *breaker.State {
	return &breaker.State{ProbeAt: g.Breaker.ProbeAt, Wait: g.Breaker.Wait, Probes: g.Breaker.Probes, Passed: g.passed, Failed: g.failed, Rejected: g.rejected}
}

// setBreaker stores the state of a breaker. Copies of the gate keep theirs.
func (g *gate) setBreaker(state *breaker.State) {
	g.Breaker = &store.Breaker{ProbeAt: inMicros(state.ProbeAt), Wait: state.Wait.Truncate(time.Microsecond), Probes: state.Probes}
	g.passed, g.failed, g.rejected = state.Passed, state.Failed, state.Rejected
}

// probes reports whether the claimed task has a permit of a breaker.
func (d *database) probes(task *Task) bool {
	return slices.ContainsFunc(d.permits, func(p Permit) bool {
		g := d.gate(p.Gate)
		return p.Task == task.ID && p.Attempt == task.Attempt && g != nil && g.Kind == store.GateBreaker && !g.lifted
	})
}

// forgotten reports whether the gate is a breaker that nothing has used for a long time: it has no bucket, so it blocks
// no task.
func (d *database) forgotten(g *gate, now time.Time) bool {
	return g.Kind == store.GateBreaker && now.Sub(g.Breaker.ProbeAt) > breaker.ForgottenAfter &&
		!slices.ContainsFunc(d.buckets, func(b bucket) bool { return b.Gate == g.ID })
}

// correctBreakers allows a probe of each breaker whose next probe is too late because the clock was set back.
func (d *database) correctBreakers(now time.Time) {
	d.gates = slices.Clone(d.gates)
	for i := range d.gates {
		if g := &d.gates[i]; g.Breaker != nil && ahead(now, g.Breaker.ProbeAt) {
			state := g.breakerState()
			state.ProbeAt = now
			g.setBreaker(state)
		}
	}
}
