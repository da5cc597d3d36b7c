package storetest_test

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"pgregory.net/rapid"

	"github.com/holdfastq/holdfast/store"
)

// subjects are the subjects of the gates. No gate concerns all tasks.
var subjects = rapid.SampledFrom([]store.Subject{{Queue: "a"}, {Queue: "default"}, {Type: "one"}, {Type: "two"}, {Key: "t"}, {Queue: "B"}, {Target: agreeTarget}})

const agreeTarget = "https://t.example:443"

// drawGate draws the index of a gate, or -1 for a gate that does not exist.
func (p *pair) drawGate(t *rapid.T) int {
	return rapid.IntRange(-1, len(p.both[0].gates)-1).Draw(t, "gate")
}

func (h *handle) gateID(index int) store.ID {
	if index < 0 || index >= len(h.gates) {
		return 1 << 40
	}
	return h.gates[index]
}

func (h *handle) gateName(id store.ID) string {
	if id == 0 {
		return "-"
	}
	return fmt.Sprintf("g%d", slices.Index(h.gates, id))
}

func (h *handle) formatGate(g store.Gate) string {
	return fmt.Sprintf("{%s %s %s %q %q %q closed=%s until=%s%s}", h.gateName(g.ID), g.Kind, g.Subject, g.Per, g.Name, g.Reason, h.formatTime(g.ClosedAt), h.formatTime(g.Until), h.formatBreaker(g.Breaker))
}

func (h *handle) formatBreaker(b *store.Breaker) string {
	if b == nil {
		return ""
	}
	return fmt.Sprintf(" probes=%d at %s wait=%s", b.Probes, h.formatTime(b.ProbeAt), b.Wait)
}

// reportTargets reports how targets answer. If the clocks of the stores differ, a breaker trips for an hour.
func (p *pair) reportTargets(t *rapid.T) {
	var reports []store.TargetReport
	for i, target := range rapid.SampledFrom([][]string{{agreeTarget}, {agreeTarget}, {agreeTarget, "http://t.example:80"}, {agreeTarget, "t.example"}, {}}).Draw(t, "targets") {
		r := store.TargetReport{
			Target: target, Trip: rapid.Bool().Draw(t, "trip"), Passed: rapid.IntRange(0, 2).Draw(t, "passed"), Failed: rapid.IntRange(0, 2).Draw(t, "failed"),
			Cause: dirty.Draw(t, "cause"),
		}
		if r.Refused = !p.exact && (r.Trip || i > 0) || rapid.Bool().Draw(t, "refused"); r.Refused {
			r.Pause = time.Hour
		}
		if p.exact && r.Refused {
			r.Pause = rapid.SampledFrom([]time.Duration{0, 1, time.Second, time.Minute}).Draw(t, "pause")
		}
		reports = append(reports, r)
	}
	p.check(fmt.Sprintf("report %+v", reports), func(h *handle, _ int) (string, error) {
		err := h.ReportTargets(p.ctx, reports)
		gates, listed := h.Gates(p.ctx)
		for _, gate := range gates {
			if !slices.Contains(h.gates, gate.ID) {
				h.gates = append(h.gates, gate.ID)
			}
		}
		return "", errors.Join(err, listed)
	})
}

func (p *pair) pause(t *rapid.T) {
	by, noReason := drawReason(t)
	subject, wait := subjects.Draw(t, "subject"), rapid.SampledFrom([]time.Duration{0, 0, time.Hour, 1, -1}).Draw(t, "for")
	if p.exact {
		wait = p.waits.Draw(t, "for exactly")
	}
	change := store.PauseFor(subject, wait)
	if rapid.Bool().Draw(t, "keep the end") {
		change.For = nil
	}
	change.NoReason = noReason
	p.check(fmt.Sprint("pause ", subject, wait, change.For == nil, by.Reason, noReason), func(h *handle, _ int) (string, error) {
		paused, err := h.Pause(p.ctx, by, change)
		gate := paused.After
		if err == nil && !slices.Contains(h.gates, gate.ID) {
			h.gates = append(h.gates, gate.ID)
		}
		text := h.formatGate(gate)
		if paused.Before != nil {
			text += " before " + h.formatGate(*paused.Before)
		}
		return text, err
	})
}

// drawReason draws an actor, and whether a change of a gate removes the reason.
func drawReason(t *rapid.T) (by store.Actor, noReason bool) {
	by = store.Actor{Name: rapid.SampledFrom([]string{"anna", "ben"}).Draw(t, "actor"), Surface: store.API}
	by.Reason = rapid.SampledFrom([]string{"", "test", "other"}).Draw(t, "reason")
	return by, rapid.IntRange(0, 3).Draw(t, "no reason") == 0
}

// resumeGate opens a pause or a breaker, or removes a limit, by its id.
func (p *pair) resumeGate(t *rapid.T) {
	gate, limit := p.drawGate(t), rapid.Bool().Draw(t, "limit")
	p.check(fmt.Sprint("resume gate ", gate, limit), func(h *handle, _ int) (string, error) {
		by := store.Actor{Name: "ben", Surface: store.CommandLine}
		if limit {
			unset, err := h.UnsetLimitByID(p.ctx, by, h.gateID(gate), nil)
			return h.formatLimit(unset), err
		}
		opened, err := h.ResumeGate(p.ctx, by, h.gateID(gate), nil)
		return h.formatGate(opened), err
	})
}

func (p *pair) resume(t *rapid.T) {
	subject := subjects.Draw(t, "subject")
	p.check(fmt.Sprint("resume ", subject), func(h *handle, _ int) (string, error) {
		gate, err := h.Resume(p.ctx, store.Actor{Name: "ben", Surface: store.CommandLine}, subject)
		return h.formatGate(gate), err
	})
}

func (p *pair) block(t *rapid.T) {
	gate, tickets := p.drawGate(t), p.drawTickets(t)
	p.check(fmt.Sprint("block ", gate, tickets), func(h *handle, _ int) (string, error) {
		return "", h.Block(p.ctx, h.gateID(gate), h.tickets(tickets))
	})
}

// releaseBlocked releases blocked tasks. If a task has left its gate and was deleted, a store may still have its record
// and count it.
func (p *pair) releaseBlocked(t *rapid.T) {
	limit := 1000
	if p.exact && !p.pruned {
		limit = rapid.SampledFrom([]int{0, 1, 2, 1000}).Draw(t, "limit")
	}
	p.check(fmt.Sprint("release ", limit), func(h *handle, _ int) (string, error) {
		released, err := h.ReleaseBlocked(p.ctx, limit)
		for p.pruned && err == nil && released.Tasks > 0 {
			released, err = h.ReleaseBlocked(p.ctx, limit)
		}
		return fmt.Sprint(released.Tasks, released.Next < 0, h.formatDuration(released.Next)), err
	})
}

// scopes are the scopes of the limits.
var scopes = rapid.SampledFrom([]store.Scope{
	{Subject: store.Subject{Type: "one"}}, {Subject: store.Subject{Type: "two"}}, {Subject: store.Subject{Key: "t"}}, {Per: store.PerKey},
	{Subject: store.Subject{Queue: "a"}}, {Subject: store.Subject{Type: "one"}, Per: store.PerKey}, {Subject: store.Subject{Queue: "default", Key: "t"}},
	{Per: store.PerTarget}, {},
})

// drawRate draws a rate that allows one start in a sequence, or as many as tasks are blocked. If the clocks of the
// stores are the same, it also draws other rates.
func (p *pair) drawRate(t *rapid.T) store.Rate {
	rates := []store.Rate{{}, {}, {Count: 1, Per: 24 * time.Hour}, {Count: 100_000, Per: time.Second}}
	if p.exact {
		rates = append(rates, store.Rate{Count: 1, Per: time.Second}, store.Rate{Count: 3, Per: time.Second}, store.Rate{Count: 2, Per: time.Minute}, store.Rate{Count: 30, Per: time.Second})
	}
	return rapid.SampledFrom(rates).Draw(t, "rate")
}

func (p *pair) setLimit(t *rapid.T) {
	by, noReason := drawReason(t)
	l := store.Limit{Scope: scopes.Draw(t, "scope"), Rate: p.drawRate(t), Concurrency: rapid.SampledFrom([]int{0, 1, 2, 1000, -1}).Draw(t, "concurrency")}
	change := l.Change()
	if rapid.Bool().Draw(t, "keep the rate") {
		change.Rate = nil
	}
	if rapid.Bool().Draw(t, "keep the concurrency") {
		change.Concurrency = nil
	}
	change.NoReason = noReason
	p.check(fmt.Sprint("set ", l, l.Rate, l.Concurrency, change.Rate == nil, change.Concurrency == nil, by.Reason, noReason), func(h *handle, _ int) (string, error) {
		changed, err := h.SetLimit(p.ctx, by, change)
		set := changed.After
		if err == nil && !slices.Contains(h.gates, set.ID) {
			h.gates = append(h.gates, set.ID)
		}
		text := h.formatLimit(set)
		if changed.Before != nil {
			text += " before " + h.formatLimit(*changed.Before)
		}
		return text, err
	})
}

func (p *pair) unsetLimit(t *rapid.T) {
	scope := scopes.Draw(t, "scope")
	p.check(fmt.Sprint("unset ", scope), func(h *handle, _ int) (string, error) {
		unset, err := h.UnsetLimit(p.ctx, store.Actor{Name: "ben", Surface: store.CommandLine}, scope)
		return h.formatLimit(unset), err
	})
}

func (h *handle) formatLimit(l store.Limit) string {
	return fmt.Sprintf("{%s %s %s %d %q %s set=%s}", h.gateName(l.ID), l.Scope, l.Rate, l.Concurrency, l.Name, l.Reason, h.formatTime(l.SetAt))
}

// blockRefused claims tasks, and blocks those that a gate concerns, as a worker does.
func (p *pair) blockRefused(t *rapid.T) {
	worker, tickets := p.drawWorker(t), p.drawTickets(t)
	p.check(fmt.Sprint("claim and block ", worker, tickets), func(h *handle, _ int) (string, error) {
		own := h.tickets(tickets)
		claims, err := h.Claim(p.ctx, h.workerID(worker), store.AnyOf("one", "two", "x.y/z", "http"), own, store.IntoExecutors)
		text := ""
		for i, c := range claims {
			text += fmt.Sprint(c.Verdict, h.gateName(c.Gate), " ")
			if c.Verdict == store.Blocked && err == nil {
				err = h.Block(p.ctx, c.Gate, own[i:i+1])
			}
		}
		return text, err
	})
}

// compareLimits compares the limits, their use, and the limits for which the tasks wait.
func (p *pair) compareLimits() {
	p.check("limits", func(h *handle, _ int) (string, error) {
		limits, err := h.Limits(p.ctx)
		text := ""
		for _, l := range limits {
			text += h.formatLimit(l.Limit) + fmt.Sprint(l.InUse)
			if !p.pruned {
				text += fmt.Sprint(" ", l.Blocked)
			}
		}
		return text, err
	})
	p.check("limits of tasks", func(h *handle, _ int) (string, error) {
		text := ""
		for _, id := range h.tasks {
			limits, err := h.LimitsOf(p.ctx, id)
			if err != nil {
				return "", err
			}
			text += "\n   " + h.taskName(id)
			for _, l := range limits {
				text += h.formatLimit(l.Limit) + fmt.Sprintf("%q %d%s", l.Bucket, l.InUse, h.formatBreaker(l.Breaker))
				if l.Reserved != 0 {
					text += " reserved for " + h.taskName(l.Reserved)
				}
				if !p.pruned {
					text += fmt.Sprint(" ", l.Blocked, l.Ahead)
				}
			}
		}
		return text, nil
	})
}

// compareGates compares the closed gates, and the gates of all tasks.
func (p *pair) compareGates() {
	p.check("gates of tasks", func(h *handle, _ int) (string, error) {
		of, err := h.GatesOf(p.ctx, h.tasks)
		text := ""
		for _, id := range h.tasks {
			text += h.taskName(id) + h.formatGate(of[id])
		}
		return text, err
	})
	p.check("gates", func(h *handle, _ int) (string, error) {
		gates, err := h.Gates(p.ctx)
		text := ""
		for _, g := range gates {
			text += h.formatGate(g)
			if !p.pruned {
				text += fmt.Sprint(g.Blocked)
			}
		}
		return text, err
	})
}
