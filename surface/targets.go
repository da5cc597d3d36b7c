package surface

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/app"
	"github.com/holdfastq/holdfast/store"
)

// Target is a target that has a closed gate or a limit.
type Target struct {
	Target string `json:"target"`
	// State describes the state of the target in words, such as "open: no task starts before the next probe".
	State string `json:"state" doc:"What happens to the tasks of the target now, in words."`
	// Blocked is the sum of the numbers of the gates and limits. Each is at most store.MaxCountedBlocked.
	Blocked int              `json:"blocked" doc:"Tasks that wait at these gates and limits, each counted up to 100,000."`
	Pause   *ListedGate      `json:"pause,omitempty" doc:"The pause of the target."`
	Breaker *ListedGate      `json:"breaker,omitempty" doc:"The breaker of the target: closed_at is when it tripped, and reason the last fault."`
	Limits  []store.LimitUse `json:"limits" doc:"The limits for this target."`
	// TrippedBy is the reason in the audit entry of the trip. Only TargetOf sets it.
	TrippedBy string `json:"tripped_by,omitempty" doc:"The answers that have tripped the breaker. Only of a single target."`
}

// Targets returns the targets that have a closed gate or a limit, sorted. Limits per target belong to no target.
func Targets(ctx context.Context, b *app.Backend) ([]Target, error) {
	gates, err := ListGates(ctx, b)
	if err != nil {
		return nil, err
	}
	limits, err := b.Store.Limits(ctx)
	if err != nil {
		return nil, err
	}
	byName := make(map[string]*Target)
	of := func(name string, blocked int) *Target {
		if byName[name] == nil {
			byName[name] = &Target{Target: name, Limits: []store.LimitUse{}}
		}
		byName[name].Blocked += blocked
		return byName[name]
	}
	for i, gate := range gates {
		switch {
		case gate.Target == "":
		case gate.Kind == store.GateBreaker:
			of(gate.Target, gate.Blocked).Breaker = &gates[i]
		default:
			of(gate.Target, gate.Blocked).Pause = &gates[i]
		}
	}
	for _, limit := range limits {
		if limit.Target != "" {
			t := of(limit.Target, limit.Blocked)
			t.Limits = append(t.Limits, limit)
		}
	}
	list := []Target{}
	for _, t := range byName {
		t.State = t.state()
		list = append(list, *t)
	}
	slices.SortFunc(list, func(a, b Target) int { return cmp.Compare(a.Target, b.Target) })
	return list, nil
}

// TargetOf returns a target that has a closed gate or a limit, given a URL, or a host with or without a port. It
// returns an ErrNotFound if the target has neither.
func TargetOf(ctx context.Context, b *app.Backend, text string) (Target, error) {
	name, err := parseTarget(text)
	if err != nil {
		return Target{}, err
	}
	list, err := Targets(ctx, b)
	if err != nil {
		return Target{}, err
	}
	i := slices.IndexFunc(list, func(t Target) bool { return t.Target == name })
	if i < 0 {
		return Target{}, fmt.Errorf("%w: the target %s has no breaker that has tripped, no pause and no limit", holdfast.ErrNotFound, name)
	}
	if list[i].Breaker == nil {
		return list[i], nil
	}
	trips, err := b.Store.AuditLog(ctx, store.AuditFilter{Subject: list[i].Breaker.Subject.String(), Action: store.ActionTrip, Actor: string(store.ByWorker), Limit: 1})
	if len(trips) > 0 {
		list[i].TrippedBy = trips[0].Reason
	}
	return list[i], err
}

// state describes the target.
func (t *Target) state() string {
	var parts []string
	if t.Pause != nil {
		parts = append(parts, "paused: no task starts")
	}
	if t.Breaker != nil {
		parts = append(parts, breakerState(t.Breaker.Breaker))
	}
	if len(parts) == 0 {
		return "limited: tasks start as the limits allow"
	}
	return strings.Join(parts, "; ")
}

// breakerState describes the state of a breaker.
func breakerState(b *ListedBreaker) string {
	text := string(b.State)
	switch b.State {
	case store.BreakerOpen:
		return text + ": no task starts before the next probe"
	case store.BreakerHalfOpen:
		return text + fmt.Sprintf(": up to %d tasks start as probes", b.Probes)
	}
	return text + fmt.Sprintf(": up to %d tasks at a time start as probes, and more if these succeed", b.Probes)
}

// TargetQuery is a request for a target.
type TargetQuery struct {
	Target string `query:"target" arg:"0" required:"true" doc:"The target: a URL, of which the scheme, the host and the port count, or a host with or without a port, which is that of https."`
}

// Check returns an error if the request is invalid.
func (r TargetQuery) Check() error {
	if _, err := parseTarget(r.Target); err != nil {
		return &MemberError{"target", err}
	}
	return nil
}
