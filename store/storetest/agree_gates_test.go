package storetest_test

import (
	"fmt"
	"slices"
	"time"

	"pgregory.net/rapid"

	"github.com/holdfastq/holdfast/store"
)

// subjects are the subjects of the gates. No gate concerns all tasks.
var subjects = rapid.SampledFrom([]store.Subject{{Queue: "a"}, {Queue: "default"}, {Type: "one"}, {Type: "two"}, {Key: "t"}, {Queue: "B"}})

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
	return fmt.Sprintf("{%s %s %s %q %s closed=%s until=%s}", h.gateName(g.ID), g.Kind, g.Subject, g.Name, g.Reason, h.formatTime(g.ClosedAt), h.formatTime(g.Until))
}

func (p *pair) pause(t *rapid.T) {
	by := store.Actor{Name: rapid.SampledFrom([]string{"anna", "ben"}).Draw(t, "actor"), Surface: store.API, Reason: "test"}
	subject, wait := subjects.Draw(t, "subject"), rapid.SampledFrom([]time.Duration{0, 0, time.Hour, 1, -1}).Draw(t, "for")
	if p.exact {
		wait = p.waits.Draw(t, "for exactly")
	}
	p.check(fmt.Sprint("pause ", subject, wait), func(h *handle, _ int) (string, error) {
		gate, err := h.Pause(p.ctx, by, subject, wait)
		if err == nil && !slices.Contains(h.gates, gate.ID) {
			h.gates = append(h.gates, gate.ID)
		}
		return h.formatGate(gate), err
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

// releaseBlocked releases blocked tasks. A store keeps the record of a task that left its gate and was deleted, and may
// count it.
func (p *pair) releaseBlocked(t *rapid.T) {
	limit := 1000
	if p.exact && !p.pruned {
		limit = rapid.SampledFrom([]int{0, 1, 2, 1000}).Draw(t, "limit")
	}
	p.check(fmt.Sprint("release ", limit), func(h *handle, _ int) (string, error) {
		n, err := h.ReleaseBlocked(p.ctx, limit)
		if p.pruned {
			n = 0
		}
		return fmt.Sprint(n), err
	})
}

// compareGates compares the closed gates, and those of all tasks.
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
