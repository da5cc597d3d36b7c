package memory

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/internal/backoff"
	"github.com/holdfastq/holdfast/store"
)

// gate is a stored gate. It remains until its blocked tasks are released. Only limits use rate, only limits and
// breakers use concurrency, and only breakers use passed and failed.
type gate struct {
	store.Gate
	lifted                   bool
	rate                     store.Rate
	concurrency              int
	passed, failed, rejected int
}

// givesPermits reports whether the gate is closed only for tasks without a permit.
func (g *gate) givesPermits() bool { return g.Kind != store.GatePause }

func (g *gate) closed(now time.Time) bool {
	return !g.lifted && (g.Until.IsZero() || g.Until.After(now))
}

// closedGates returns the gates that are closed, except limits. Breakers are among them.
func closedGates(gates []gate, now time.Time) []store.Gate {
	var closed []store.Gate
	for i := range gates {
		if gates[i].Kind != store.GateLimit && gates[i].closed(now) {
			closed = append(closed, gates[i].Gate)
		}
	}
	return closed
}

// pausedQueue reports whether a closed gate concerns all tasks of the queue.
func (d *database) pausedQueue(queue string, now time.Time) bool {
	return slices.ContainsFunc(closedGates(d.gates, now), func(g store.Gate) bool { return g.Subject == store.Subject{Queue: queue} })
}

// gateKeeping has the rows in which a claim finds the gates that concern its tasks.
type gateKeeping struct {
	gates   []gate
	permits []Permit
}

func (d *database) gateKeeping() gateKeeping { return gateKeeping{d.gates, d.permits} }

// gateOf returns the oldest pause that concerns the task. If there is none, it returns the oldest limit or breaker of
// which the task has no permit, or 0.
func (k gateKeeping) gateOf(task *Task, now time.Time) store.ID {
	if pause := pauseOf(k.gates, task, now); pause != 0 {
		return pause
	}
	if needs := k.needs(task); len(needs) > 0 {
		return needs[0].Gate
	}
	return 0
}

// pauseOf returns the oldest pause that concerns the task, or 0.
func pauseOf(gates []gate, task *Task, now time.Time) store.ID {
	for i := range gates {
		if g := &gates[i]; g.Kind == store.GatePause && g.closed(now) && g.Selects(&task.Task) {
			return g.ID
		}
	}
	return 0
}

// claimStatement is a claim in progress at the server. It sees the gates and the permits as they were at its begin. Its
// time is that of its begin, too. So if a person prolongs a pause that was to end meanwhile, the statement still
// refuses the tasks of the pause.
type claimStatement struct {
	store   *Store
	begun   bool
	now     time.Time
	seen    gateKeeping
	changed []holdfast.TaskID // tasks that have changed since the begin
}

// admits reports whether no gate that the statement sees concerns the task. It refuses each task that has changed since
// the begin, because the permits that the statement sees may now belong to other tasks. A statement that sees no gates
// refuses no task, as in store/postgres.
func (c *claimStatement) admits(task *Task) bool {
	gated := slices.ContainsFunc(c.seen.gates, func(g gate) bool { return !g.lifted })
	if gated && slices.Contains(c.changed, task.ID) {
		return false
	}
	return c.seen.gateOf(task, c.now) == 0
}

// begin begins the statement, unless the caller of Step.Begin has already begun it.
func (c *claimStatement) begin() {
	if !c.begun {
		c.begun, c.now, c.seen = true, c.store.now(), c.store.db.gateKeeping()
		c.store.claims = append(c.store.claims, c)
	}
}

// end ends the statement. It returns an ErrUnavailable if the server has stopped since the begin.
func (c *claimStatement) end() error {
	i := slices.Index(c.store.claims, c)
	if i < 0 {
		return fmt.Errorf("%w: the server stopped during the statement", holdfast.ErrUnavailable)
	}
	c.store.claims = slices.Delete(slices.Clone(c.store.claims), i, i+1)
	return nil
}

// Pause implements store.Gates. After its commit it waits for the claims in progress, as store/postgres does.
func (c *Client) Pause(ctx context.Context, by store.Actor, change store.PauseChange) (store.Changed[store.Gate], error) {
	if err := change.Validate(); err != nil {
		return store.Changed[store.Gate]{}, err
	}
	var paused store.Changed[store.Gate]
	var before []*claimStatement
	err := c.do(ctx, Step{Op: "Pause", text: change.String()}, func(now time.Time) (err error) {
		if err := by.Validate(); err != nil {
			return err
		}
		paused, err = c.store.pause(by, change, now)
		before = c.store.claims
		return err
	})
	if err != nil {
		return store.Changed[store.Gate]{}, err
	}
	return paused, c.awaitClaims(ctx, before)
}

// pause changes the pause of a subject, or stores a new one.
func (s *Store) pause(by store.Actor, change store.PauseChange, now time.Time) (paused store.Changed[store.Gate], err error) {
	i := slices.IndexFunc(s.db.gates, func(g gate) bool {
		return g.Kind == store.GatePause && g.closed(now) && g.Subject == change.Subject
	})
	if i >= 0 {
		before := s.db.gates[i].Gate
		paused.Before = &before
	}
	if change.Check != nil {
		if err := change.Check(paused.Before); err != nil {
			return paused, err
		}
	}
	s.openExpiredPause(change.Subject, now)
	gates := slices.Clone(s.db.gates)
	if i < 0 {
		s.db.last.gate++
		i = len(gates)
		gates = append(gates, gate{Gate: store.Gate{ID: store.ID(s.db.last.gate), Kind: store.GatePause, Subject: change.Subject, ClosedAt: now}})
	}
	after := &gates[i].Gate
	after.Actor = by
	after.Reason = change.ReasonAfter(paused.Before, by)
	if change.For != nil {
		if after.Until = (time.Time{}); *change.For > 0 {
			after.Until = later(now, *change.For)
		}
	}
	paused.After, s.db.gates = *after, gates
	entry := store.AuditEntry{At: now, Actor: by, Action: store.ActionPause, Subject: change.String(), After: after.Version()}
	if paused.Before != nil {
		entry.Before = paused.Before.Version()
	}
	s.recordAudit(entry)
	return paused, nil
}

// The first and the longest wait between two checks for claims in progress.
const (
	firstLook = 2 * time.Millisecond
	longLook  = 50 * time.Millisecond
)

// awaitClaims waits until the given claims have ended.
func (c *Client) awaitClaims(ctx context.Context, before []*claimStatement) error {
	for pause := backoff.New(firstLook, longLook); len(before) > 0; {
		if err := pause.Wait(ctx); err != nil {
			return contextError("Claims in progress", err)
		}
		var inProgress []*claimStatement
		err := c.do(ctx, Step{Op: "Claims in progress"}, func(time.Time) error {
			inProgress = c.store.claims
			return nil
		})
		if err != nil {
			return err
		}
		before = slices.DeleteFunc(slices.Clone(before), func(s *claimStatement) bool { return !slices.Contains(inProgress, s) })
	}
	return nil
}

// Resume implements store.Gates.
func (c *Client) Resume(ctx context.Context, by store.Actor, s store.Subject) (store.Gate, error) {
	if err := s.Validate(); err != nil {
		return store.Gate{}, err
	}
	var opened store.Gate
	err := c.do(ctx, Step{Op: "Resume", text: s.String()}, func(now time.Time) error {
		if err := by.Validate(); err != nil {
			return err
		}
		closed := slices.DeleteFunc(closedGates(c.store.db.gates, now), func(g store.Gate) bool { return g.Subject != s })
		if len(closed) == 0 {
			return fmt.Errorf("%w: %s is not paused", holdfast.ErrNotFound, s)
		}
		slices.SortStableFunc(closed, func(a, b store.Gate) int { return -strings.Compare(string(a.Kind), string(b.Kind)) }) // the pause first
		for _, gate := range closed {
			c.store.lift(by, gate, now)
		}
		opened = closed[0]
		return nil
	})
	if err != nil {
		return store.Gate{}, err
	}
	return opened, nil
}

// ResumeGate implements store.Gates.
func (c *Client) ResumeGate(ctx context.Context, by store.Actor, id store.ID, check func(store.Gate) error) (store.Gate, error) {
	var opened store.Gate
	err := c.do(ctx, Step{Op: "ResumeGate", text: id.String()}, func(now time.Time) error {
		if err := by.Validate(); err != nil {
			return err
		}
		closed := closedGates(c.store.db.gates, now)
		i := slices.IndexFunc(closed, func(g store.Gate) bool { return g.ID == id })
		if i < 0 {
			return fmt.Errorf("%w: gate %s is not closed", holdfast.ErrNotFound, id)
		}
		if check != nil {
			if err := check(closed[i]); err != nil {
				return err
			}
		}
		opened = closed[i]
		c.store.lift(by, opened, now)
		return nil
	})
	if err != nil {
		return store.Gate{}, err
	}
	return opened, nil
}

// pauseEnded is the actor that opens a pause whose time has passed.
var pauseEnded = store.Actor{Name: string(store.Janitor), Surface: store.Janitor, Reason: "the time of the pause has passed"}

// openExpiredPause opens the pause of a subject if its time has passed. Otherwise a new pause would get its id.
func (s *Store) openExpiredPause(subject store.Subject, now time.Time) {
	for i := range s.db.gates {
		if g := &s.db.gates[i]; g.Kind == store.GatePause && g.Subject == subject && !g.lifted && !g.closed(now) {
			s.lift(pauseEnded, g.Gate, now)
		}
	}
}

// openExpired opens gates whose time has passed, at most store.MaxOpened. It reports whether there may be more.
func (s *Store) openExpired(now time.Time) (more bool) {
	opened := 0
	for i := range s.db.gates {
		if opened == store.MaxOpened {
			return true
		}
		switch g := &s.db.gates[i]; {
		case g.lifted:
			continue
		case s.db.forgotten(g, now):
			s.lift(store.ResetByJanitor, g.Gate, now)
		case !g.closed(now):
			s.lift(pauseEnded, g.Gate, now)
		default:
			continue
		}
		opened++
	}
	return opened == store.MaxOpened
}

// lift opens a gate for an actor.
func (s *Store) lift(by store.Actor, opened store.Gate, now time.Time) {
	s.open(opened.ID)
	s.recordAudit(store.AuditEntry{At: now, Actor: by, Action: store.ActionResume, Subject: opened.String(), Before: opened.Version()})
}

// open opens a gate.
func (s *Store) open(id store.ID) {
	s.db.gates = slices.Clone(s.db.gates)
	s.db.gate(id).lifted = true
}

// Gates implements store.Gates.
func (c *Client) Gates(ctx context.Context) ([]store.Gate, error) {
	var gates []store.Gate
	err := c.do(ctx, Step{Op: "Gates"}, func(now time.Time) error {
		gates = closedGates(c.store.db.gates, now)
		for i := range gates {
			gates[i].Blocked = min(c.store.db.blockedAt(gates[i].ID), store.MaxCountedBlocked)
		}
		return nil
	})
	if err != nil {
		return nil, err // the effect may still happen and write gates
	}
	return gates, nil
}

// GatesOf implements store.Gates.
func (c *Client) GatesOf(ctx context.Context, tasks []holdfast.TaskID) (map[holdfast.TaskID]store.Gate, error) {
	of := make(map[holdfast.TaskID]store.Gate)
	err := c.do(ctx, Step{Op: "GatesOf"}, func(now time.Time) error {
		gates := c.store.db.gateKeeping()
		for _, id := range tasks {
			task := c.store.db.task(id)
			if task == nil || task.State != holdfast.Ready {
				continue
			}
			if gate := c.store.db.gate(gates.gateOf(task, now)); gate != nil {
				of[id] = gate.Gate
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return of, nil
}

// gate returns a row, or nil if there is none.
func (d *database) gate(id store.ID) *gate {
	if i := slices.IndexFunc(d.gates, func(g gate) bool { return g.ID == id }); i >= 0 {
		return &d.gates[i]
	}
	return nil
}

// blockedAt returns the number of tasks that the gate has blocked and not released.
func (d *database) blockedAt(id store.ID) (n int) {
	for i := range d.tasks {
		if d.tasks[i].Gate == id {
			n++
		}
	}
	return n
}

// lockedLook is the time until the next check of locked keys.
const lockedLook = 100 * time.Millisecond

// ReleaseBlocked implements store.Gates.
func (c *Client) ReleaseBlocked(ctx context.Context, limit int) (store.Released, error) {
	var released store.Released
	err := c.do(ctx, Step{Op: "ReleaseBlocked"}, func(now time.Time) error {
		db := &c.store.db
		permits := len(db.permits) > 0
		limited := permits || len(db.buckets) > 0
		opened, again := c.store.releaseOpened(limit, now)
		released = store.Released{Next: noNext}
		if limited {
			released = c.store.givePermits(limit, now, c.permitted)
		}
		if released.Tasks += opened; again {
			released.Next = 0
		}
		started, waiting := c.store.checkKeys(limit, now)
		if released.Tasks += started; started > 0 {
			released.Next = 0
		}
		if waiting && released.Next < 0 {
			released.Next = lockedLook
		}
		released.Waiting = released.Waiting || waiting
		topical := c.topicLook(limit, now)
		if released.Next < 0 || topical.Next >= 0 && topical.Next < released.Next {
			released.Next = topical.Next
		}
		released.Tasks, released.Waiting = released.Tasks+topical.Tasks, released.Waiting || topical.Waiting
		released.PermitsInUse = permits
		return nil
	})
	if err != nil {
		return store.Released{}, err
	}
	return released, nil
}

// releaseOpened releases at most limit tasks of gates that have opened. After their last tasks, it deletes these gates
// and opens the next ones whose time has passed. It also reports whether another call may release tasks or open gates.
func (s *Store) releaseOpened(limit int, now time.Time) (released int, again bool) {
	released = s.releaseLifted(limit, now)
	if released == limit && limit > 0 {
		return released, true
	}
	s.db.deleteOpenGates()
	more := s.openExpired(now)
	released += s.releaseLifted(limit-released, now)
	return released, more || released > 0
}

// releaseLifted releases at most limit tasks of gates that have opened.
func (s *Store) releaseLifted(limit int, now time.Time) (released int) {
	for i := range s.db.gates {
		if s.db.gates[i].lifted {
			released += s.release(s.db.gates[i].ID, limit-released, now)
		}
	}
	return released
}

// deleteOpenGates deletes the gates that have opened and block no task.
func (d *database) deleteOpenGates() {
	d.gates = slices.DeleteFunc(slices.Clone(d.gates), func(g gate) bool { return g.lifted && d.blockedAt(g.ID) == 0 })
	d.buckets = slices.DeleteFunc(d.buckets, func(b bucket) bool { return d.gate(b.Gate) == nil })
}

// release releases at most limit tasks that the gate has blocked. It makes a task due unless the task has left the
// gate.
func (s *Store) release(id store.ID, limit int, now time.Time) (released int) {
	for i := range s.db.tasks {
		task := &s.db.tasks[i]
		if released == limit || task.Gate != id {
			continue
		}
		released++
		if !task.Blocked() {
			task.Gate = 0
			continue
		}
		s.changing(task)
		task.DueAt, task.Gate = now, 0
		s.changed("ReleaseBlocked", task, nil)
	}
	return released
}
