package simstore

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/holdfastq/holdfast/presence"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/store"
)

// watching is the key of the place of the one who watches for absences. No run has it.
const watching holdfast.RunID = 0

// releaseLimit is how long a release waits for the server. What it cannot tell the server sees by the end of the connection.
const releaseLimit = time.Second

// sign is a session that holds a name, or waits for it. What is not said to be the client's belongs to effects.
type sign struct {
	client *Client
	key    holdfast.RunID
	// Both are told to the client.
	granted bool // it holds the name
	ended   bool // by the server

	// The client's.
	held, gone chan struct{} // closed when it learns that it holds the name, and that the session has ended
	over       atomic.Bool   // it does not want it any more, which the server sees soon
	left       atomic.Bool   // nor did it know then that the session had ended
}

// Herald has what a server says unasked reach a client: deliver is called once, when that arrives, or never.
type Herald func(step Step, deliver func())

// SetHerald sets the way from the server to the client; without one everything arrives at once. It must come before the
// client is used.
func (c *Client) SetHerald(h Herald) { c.herald = h }

func (c *Client) tell(op string, key holdfast.RunID, deliver func()) {
	if c.herald == nil {
		deliver()
		return
	}
	c.herald(Step{Op: op, run: key}, deliver)
}

// Show implements presence.Store.
func (c *Client) Show(ctx context.Context, run holdfast.RunID) (<-chan struct{}, func(), error) {
	return c.hold(ctx, Step{Op: "Show", run: run})
}

// Watch implements presence.Store.
func (c *Client) Watch(ctx context.Context) (<-chan struct{}, func(), error) {
	return c.hold(ctx, Step{Op: "Watch", run: watching})
}

// hold waits for the name of a step's run in a session of its own.
func (c *Client) hold(ctx context.Context, step Step) (<-chan struct{}, func(), error) {
	if c.closed.Load() {
		return nil, nil, fmt.Errorf("%s: %w: the store was closed", step.Op, holdfast.ErrUnavailable)
	}
	s := &sign{client: c, key: step.run, held: make(chan struct{}), gone: make(chan struct{})}
	err := c.do(ctx, step, func(time.Time) error {
		if !s.over.Load() { // else nobody waits for the answer any more
			c.store.signs = append(c.store.signs, s)
			c.store.grant(s.key)
		}
		return nil
	})
	if err == nil {
		select {
		case <-s.held:
			return s.gone, s.release, nil
		case <-s.gone:
			err = fmt.Errorf("%s: %w: the session was ended", step.Op, holdfast.ErrUnavailable)
		case <-ctx.Done():
		}
	}
	if ctx.Err() != nil {
		err = fmt.Errorf("%s: %w: %w", step.Op, holdfast.ErrUnavailable, context.Cause(ctx))
	}
	s.release()
	return nil, nil, err
}

// release may be called more than once.
func (s *sign) release() {
	if s.over.Swap(true) {
		return
	}
	select {
	case <-s.gone:
		return
	default:
	}
	s.left.Store(true)
	ctx, cancel := context.WithTimeout(context.Background(), releaseLimit)
	defer cancel()
	_ = s.client.do(ctx, Step{Op: "Release", run: s.key}, func(time.Time) error {
		s.client.store.end(s)
		return nil
	}) // else the server sees it with the next question about that name
}

// holder is the session that has a name, which those that come later wait for.
func (s *Store) holder(key holdfast.RunID) *sign {
	for _, sign := range s.signs {
		if sign.key == key && !sign.ended {
			return sign
		}
	}
	return nil
}

// grant tells whoever has a name now.
func (s *Store) grant(key holdfast.RunID) {
	for _, sign := range s.signs {
		if sign.key == key && !sign.ended && sign.over.Load() {
			sign.ended = true
		}
	}
	if first := s.holder(key); first != nil && !first.granted {
		first.granted = true
		first.client.tell("held", key, func() { closeOnce(first.held) })
	}
}

// end ends a session.
func (s *Store) end(sign *sign) {
	if !sign.ended {
		sign.ended = true
		sign.client.tell("gone", sign.key, func() {
			if !sign.over.Load() {
				closeOnce(sign.gone)
			}
		})
		s.grant(sign.key)
	}
}

// LoseSigns ends the client's signs at the server without a word to the client, as in sessions that are half-open. What it
// returns tells the client. Both are called as an effect is, never beside one.
func (c *Client) LoseSigns() (tell func()) {
	var lost []*sign
	for _, s := range c.store.signs {
		if s.client == c && s.key != watching && !s.ended {
			s.ended = true
			lost = append(lost, s)
			c.store.grant(s.key)
		}
	}
	return func() {
		for _, s := range lost {
			if !s.over.Load() {
				closeOnce(s.gone)
			}
		}
	}
}

func (s *Store) endAll(which func(*Client) bool) {
	for _, sign := range s.signs {
		if which(sign.client) {
			s.end(sign)
		}
	}
	s.renewers = slices.DeleteFunc(s.renewers, func(r *renewer) bool { return which(r.client) })
}

// Stopped ends all sessions, as a server does that goes down or is lost.
func (s *Store) Stopped() { s.endAll(func(*Client) bool { return true }) }

// renewer is a session that carries the renewals of one run.
type renewer struct {
	client *Client
	run    holdfast.RunID
	over   atomic.Bool // the client has ended it, which the server sees soon
}

// ownSession is the session for a renewal, if it asks for one.
func (c *Client) ownSession(r store.Renewal) *renewer {
	if !r.OwnSession {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.own == nil {
		c.own = make(map[holdfast.RunID]*renewer)
	}
	if c.own[r.Run] == nil {
		c.own[r.Run] = &renewer{client: c, run: r.Run}
	}
	return c.own[r.Run]
}

func (c *Client) endOwnSession(run holdfast.RunID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if r := c.own[run]; r != nil {
		r.over.Store(true)
		delete(c.own, run)
	}
}

// opened has the server know a session. A client whose session has ended opens it again.
func (s *Store) opened(r *renewer) {
	if r != nil && !slices.Contains(s.renewers, r) {
		s.renewers = append(s.renewers, r)
	}
}

// renews reports whether there is a session that carries the renewals of a run.
func (s *Store) renews(run holdfast.RunID) bool {
	s.renewers = slices.DeleteFunc(s.renewers, func(r *renewer) bool { return r.over.Load() })
	return slices.ContainsFunc(s.renewers, func(r *renewer) bool { return r.run == run })
}

// Left reports whether the last sign of a run was given up by the run itself, which has ended then.
func (s *Store) Left(run holdfast.RunID) bool {
	for _, sign := range slices.Backward(s.signs) {
		if sign.key == run {
			return sign.left.Load()
		}
	}
	return false
}

func closeOnce(c chan struct{}) {
	select {
	case <-c:
	default:
		close(c)
	}
}

// absent reports whether a run is.
func (s *Store) absent(run *Run) bool {
	if run.State != store.RunLive || !run.Shown {
		return false
	}
	s.grant(run.ID)
	return s.holder(run.ID) == nil && !s.renews(run.ID)
}

// Absent implements presence.Store.
func (c *Client) Absent(ctx context.Context) ([]presence.Absence, error) {
	var absent []presence.Absence
	err := c.do(ctx, Step{Op: "Absent"}, func(time.Time) error {
		for i := range c.store.db.runs {
			if run := &c.store.db.runs[i]; c.store.absent(run) {
				absent = append(absent, presence.Absence{Run: run.ID, RenewedAt: run.RenewedAt})
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return absent, nil
}

// Neighbors implements presence.Store.
func (c *Client) Neighbors(ctx context.Context, boot, namespace string) ([]presence.Neighbor, error) {
	var neighbors []presence.Neighbor
	err := c.do(ctx, Step{Op: "Neighbors"}, func(time.Time) error {
		for i := range c.store.db.runs {
			run := &c.store.db.runs[i]
			of := run.process
			if run.State == store.RunLive && run.Shown && of.Boot != "" && of.Boot == boot && of.Namespace == namespace && of.Started != 0 {
				neighbors = append(neighbors, presence.Neighbor{Run: run.ID, RenewedAt: run.RenewedAt, PID: run.PID, Started: of.Started})
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return neighbors, nil
}

// FenceAbsent implements presence.Store.
func (c *Client) FenceAbsent(ctx context.Context, a presence.Absence, asked time.Time, settle time.Duration) (bool, error) {
	fenced := false
	err := c.do(ctx, Step{Op: "FenceAbsent", run: a.Run}, func(now time.Time) error {
		run := c.store.db.run(a.Run)
		if run == nil || now.Sub(c.store.started) < settle || now.Sub(asked) >= oldQuestion || !c.store.absent(run) || !run.RenewedAt.Equal(a.RenewedAt) {
			return nil
		}
		run.State, run.EndedAt, run.Early = store.RunDead, now, true
		fenced = true
		return nil
	})
	if err != nil {
		return false, err
	}
	return fenced, nil
}
