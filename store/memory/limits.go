package memory

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/internal/permit"
	"github.com/holdfastq/holdfast/internal/slots"
	"github.com/holdfastq/holdfast/store"
)

// Permit is a stored permit.
type Permit struct {
	permit.Ref
	Task    holdfast.TaskID
	Attempt int
}

// bucket is a stored bucket. The store keeps only buckets that block tasks or whose rate may delay a start.
type bucket struct {
	permit.Ref
	nextAt    time.Time // the time of its next check
	allowedAt time.Time
	behind    bool
	reserved  permit.Reservation
}

// scope returns the scope of a limit.
func (g *gate) scope() store.Scope { return store.Scope{Subject: g.Subject, Per: g.Per} }

// starts returns the highest number of attempts with permits at the same time; 0 means any.
func (g *gate) starts() int {
	if g.Breaker != nil {
		return g.Breaker.Probes
	}
	return g.concurrency
}

// limit returns a gate as a limit.
func (g *gate) limit() store.Limit {
	return store.Limit{ID: g.ID, Scope: g.scope(), Rate: g.rate, Concurrency: g.starts(), Actor: g.Actor, SetAt: g.ClosedAt}
}

// bucket returns the name of the bucket in which the gate counts a task.
func (g *gate) bucket(task *Task) string {
	if !g.givesPermits() {
		return ""
	}
	name, _ := g.scope().Bucket(&task.Task)
	return name
}

// needs returns the limits and breakers that concern the task and of which it has no permit.
func (k gateKeeping) needs(task *Task) (needs []permit.Ref) {
	for i := range k.gates {
		g := &k.gates[i]
		if !g.givesPermits() || g.lifted {
			continue
		}
		name, concerned := g.scope().Bucket(&task.Task)
		if concerned && !slices.ContainsFunc(k.permits, func(p Permit) bool { return p.Task == task.ID && p.Attempt == task.Attempt && p.Gate == g.ID }) {
			needs = append(needs, permit.Ref{Gate: g.ID, Bucket: name})
		}
	}
	return needs
}

// SetLimit implements store.Limits. After its commit it waits for the claims in progress, as store/postgres does.
func (c *Client) SetLimit(ctx context.Context, by store.Actor, change store.LimitChange) (store.Changed[store.Limit], error) {
	if err := change.Validate(); err != nil {
		return store.Changed[store.Limit]{}, err
	}
	var set store.Changed[store.Limit]
	var before []*claimStatement
	err := c.do(ctx, Step{Op: "SetLimit", text: change.String()}, func(now time.Time) (err error) {
		if err := by.Validate(); err != nil {
			return err
		}
		set, err = c.store.setLimit(by, change, now)
		before = c.store.claims
		return err
	})
	if err != nil {
		return store.Changed[store.Limit]{}, err
	}
	return set, c.awaitClaims(ctx, before)
}

// setLimit changes the limit with a scope, or stores a new one.
func (s *Store) setLimit(by store.Actor, change store.LimitChange, now time.Time) (set store.Changed[store.Limit], err error) {
	entry := store.AuditEntry{At: now, Actor: by, Action: store.ActionSet, Subject: change.String()}
	gates := slices.Clone(s.db.gates)
	i := findLimit(gates, change.Scope)
	if i >= 0 {
		before := gates[i].limit()
		set.Before, entry.Before = &before, before.Version()
	}
	if change.Check != nil {
		if err := change.Check(set.Before); err != nil {
			return set, err
		}
	}
	l, err := change.Apply(set.Before, by)
	if err != nil {
		return set, err
	}
	if i < 0 {
		s.db.last.gate++
		i, gates = len(gates), append(gates, gate{Gate: store.Gate{ID: store.ID(s.db.last.gate), Kind: store.GateLimit, Subject: l.Subject, Per: l.Per}})
	}
	g := &gates[i]
	g.Actor, g.ClosedAt, g.rate, g.concurrency = l.Actor, now, l.Rate, l.Concurrency
	g.rate.Per = g.rate.Per.Truncate(time.Microsecond)
	s.db.gates = gates
	for i := range s.db.buckets {
		if b := &s.db.buckets[i]; b.Gate == g.ID {
			b.nextAt = now
		}
	}
	entry.After = g.limit().Version()
	s.recordAudit(entry)
	set.After = g.limit()
	return set, nil
}

// findLimit returns the index of the limit with a scope, or -1.
func findLimit(gates []gate, scope store.Scope) int {
	return slices.IndexFunc(gates, func(g gate) bool { return g.Kind == store.GateLimit && !g.lifted && g.scope() == scope })
}

// UnsetLimit implements store.Limits.
func (c *Client) UnsetLimit(ctx context.Context, by store.Actor, scope store.Scope) (store.Limit, error) {
	if err := scope.Validate(); err != nil {
		return store.Limit{}, err
	}
	return c.unsetLimit(ctx, by, Step{Op: "UnsetLimit", text: scope.String()}, func(gates []gate) (int, error) {
		if i := findLimit(gates, scope); i >= 0 {
			return i, nil
		}
		return 0, fmt.Errorf("%w: there is no %s", holdfast.ErrNotFound, scope)
	})
}

// UnsetLimitByID implements store.Limits.
func (c *Client) UnsetLimitByID(ctx context.Context, by store.Actor, id store.ID, check func(store.Limit) error) (store.Limit, error) {
	return c.unsetLimit(ctx, by, Step{Op: "UnsetLimitByID", text: id.String()}, func(gates []gate) (int, error) {
		i := slices.IndexFunc(gates, func(g gate) bool { return g.Kind == store.GateLimit && !g.lifted && g.ID == id })
		if i < 0 {
			return 0, fmt.Errorf("%w: there is no limit %s", holdfast.ErrNotFound, id)
		}
		if check != nil {
			return i, check(gates[i].limit())
		}
		return i, nil
	})
}

// unsetLimit removes the limit that find returns.
func (c *Client) unsetLimit(ctx context.Context, by store.Actor, step Step, find func([]gate) (int, error)) (store.Limit, error) {
	var unset store.Limit
	err := c.do(ctx, step, func(now time.Time) error {
		if err := by.Validate(); err != nil {
			return err
		}
		gates := slices.Clone(c.store.db.gates)
		i, err := find(gates)
		if err != nil {
			return err
		}
		unset, gates[i].lifted = gates[i].limit(), true
		c.store.db.gates = gates
		c.store.recordAudit(store.AuditEntry{At: now, Actor: by, Action: store.ActionUnset, Subject: unset.Scope.String(), Before: unset.Version()})
		return nil
	})
	if err != nil {
		return store.Limit{}, err
	}
	return unset, nil
}

// Limits implements store.Limits.
func (c *Client) Limits(ctx context.Context) ([]store.LimitUse, error) {
	var limits []store.LimitUse
	err := c.do(ctx, Step{Op: "Limits"}, func(now time.Time) error {
		d := &c.store.db
		for _, l := range c.store.Limits() {
			use := store.LimitUse{Limit: l, Blocked: min(d.blockedAt(l.ID), store.MaxCountedBlocked)}
			use.InUse = d.inUse(now, func(p *Permit) bool { return p.Gate == l.ID })
			limits = append(limits, use)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return limits, nil
}

// LimitsOf implements store.Limits.
func (c *Client) LimitsOf(ctx context.Context, id holdfast.TaskID) ([]store.TaskLimit, error) {
	var limits []store.TaskLimit
	err := c.do(ctx, Step{Op: "LimitsOf"}, func(now time.Time) error {
		d := &c.store.db
		task := d.task(id)
		if task == nil || task.State != holdfast.Ready {
			return nil
		}
		for _, ref := range d.gateKeeping().needs(task) {
			gate := d.gate(ref.Gate)
			l := store.TaskLimit{Limit: gate.limit(), Breaker: gate.Breaker, Bucket: ref.Bucket}
			l.InUse = d.inUse(now, func(p *Permit) bool { return p.Ref == ref })
			blocked := d.blockedIn(ref)
			l.Blocked, l.Ahead = len(blocked), len(blocked)
			if i := slices.Index(blocked, task); i >= 0 && task.GateAttempt == task.Attempt {
				l.Ahead = i
			}
			if i := d.findBucket(ref); i >= 0 {
				l.Reserved = d.reservation(&d.buckets[i], now).Task
			}
			limits = append(limits, l)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return limits, nil
}

// findBucket returns the index of a row, or -1.
func (d *database) findBucket(ref permit.Ref) int {
	return slices.IndexFunc(d.buckets, func(b bucket) bool { return b.Ref == ref })
}

// reservation returns the reservation of a bucket, or none if it has ended. A reservation lasts while its task stays
// blocked and no pause or open breaker blocks it.
func (d *database) reservation(b *bucket, now time.Time) permit.Reservation {
	t := d.task(b.reserved.Task)
	if t == nil || !t.Blocked() || !t.BlockedAt.Equal(b.reserved.Since) || pauseOf(d.gates, t, now) != 0 {
		return permit.Reservation{}
	}
	for _, ref := range d.gateKeeping().needs(t) {
		if breaker := d.gate(ref.Gate).Breaker; breaker != nil && breaker.ProbeAt.After(now) {
			return permit.Reservation{}
		}
	}
	return b.reserved
}

// blockedIn returns the tasks that are blocked in the bucket and have not been released, in the order in which they get
// permits.
func (d *database) blockedIn(ref permit.Ref) []*Task {
	var tasks []*Task
	for i := range d.tasks {
		if t := &d.tasks[i]; t.Gate == ref.Gate && t.Bucket == ref.Bucket {
			tasks = append(tasks, t)
		}
	}
	slices.SortStableFunc(tasks, func(a, b *Task) int { return a.BlockedAt.Compare(b.BlockedAt) })
	return tasks
}

// soon is how long a permit may be in use before its task is due, because a claim may begin then. At a pause, the
// permit may be in use for that long after the begin and before the end.
const soon = 10 * time.Second

// used reports whether a permit is in use: its task is still at the attempt of the permit, and is running or about to
// start.
func (d *database) used(p *Permit, now time.Time) bool {
	t := d.task(p.Task)
	switch {
	case t == nil || t.Attempt != p.Attempt:
		return false
	case t.State == holdfast.Ready:
		return (t.DueAt.IsZero() || earlier(t.DueAt, t.NextRunAt).Before(now.Add(soon)) && t.DueAt.Before(store.BlockedUntil)) &&
			!d.staysPaused(t.Queue, now)
	}
	return t.State == holdfast.Running
}

// staysPaused reports whether a queue is paused, and no claim of its tasks can begin or be in progress.
func (d *database) staysPaused(queue string, now time.Time) bool {
	return slices.ContainsFunc(closedGates(d.gates, now), func(g store.Gate) bool {
		return g.Subject == store.Subject{Queue: queue} && g.ClosedAt.Before(now.Add(-soon)) && (g.Until.IsZero() || g.Until.After(now.Add(soon)))
	})
}

// inUse returns the number of the permits that are not free.
func (d *database) inUse(now time.Time, counted func(*Permit) bool) (n int) {
	for i := range d.permits {
		if p := &d.permits[i]; counted(p) && d.used(p, now) {
			n++
		}
	}
	return n
}

// wake stores the bucket in which a task was blocked, unless it is stored already.
func (d *database) wake(at *gate, name string, now time.Time) {
	if ref := (permit.Ref{Gate: at.ID, Bucket: name}); at.givesPermits() {
		if b := d.bucket(ref, now); b.reserved.Task != 0 && b.nextAt.Before(store.BlockedUntil) { // no task may have waited
			b.nextAt = now
		}
	}
}

// bucket returns a row. If there is none, it stores one that is due for a check.
func (d *database) bucket(ref permit.Ref, now time.Time) *bucket {
	i, found := slices.BinarySearchFunc(d.buckets, ref, func(b bucket, ref permit.Ref) int { return compareRefs(b.Ref, ref) })
	if !found {
		d.buckets = slices.Insert(d.buckets, i, bucket{Ref: ref, nextAt: now})
	}
	return &d.buckets[i]
}

func compareRefs(a, b permit.Ref) int {
	return cmp.Or(cmp.Compare(a.Gate, b.Gate), cmp.Compare(a.Bucket, b.Bucket))
}

// freePermits deletes the permits that are free, and makes their buckets due for a check.
func (d *database) freePermits(now time.Time) {
	var kept []Permit
	for i := range d.permits {
		p := d.permits[i]
		if g := d.gate(p.Gate); g != nil && !g.lifted && d.used(&p, now) {
			kept = append(kept, p)
			continue
		}
		for i := range d.buckets {
			if b := &d.buckets[i]; b.Ref == p.Ref && (b.nextAt.Equal(store.BlockedUntil) || b.reserved.Task != 0) {
				b.nextAt = now
			}
		}
	}
	d.permits = kept
}

// correctBuckets makes buckets due whose next check is too late because the clock was set back.
func (d *database) correctBuckets(now time.Time) {
	for i := range d.buckets {
		if b := &d.buckets[i]; ahead(now, b.nextAt) && b.nextAt.Before(store.BlockedUntil) {
			b.nextAt = now
		}
	}
}

// noNext says that no task waits for a permit.
const noNext = time.Duration(-1)

// longestNext is the longest time that givePermits returns.
const longestNext = 24 * time.Hour

// roomLook is the time until the next decision if tasks have found no room in their queues.
const roomLook = 100 * time.Millisecond

// givePermits gives permits to at most limit blocked tasks and makes them due. held has what the client knows of the
// tasks with permits, by queue.
func (s *Store) givePermits(limit int, now time.Time, held map[string]*slots.Permits) store.Released {
	s.db.freePermits(now)
	g := &giving{Store: s, now: now, limit: limit, buckets: make(map[permit.Ref]*permit.Bucket), rooms: s.db.readRooms(now, held)}
	g.choose()
	g.decide()
	g.put()
	released := store.Released{Tasks: g.admitted, Next: noNext}
	for i := range s.db.buckets {
		released.Waiting = released.Waiting || s.db.buckets[i].nextAt.Equal(store.BlockedUntil)
		if next := min(max(0, s.db.buckets[i].nextAt.Sub(now)), longestNext); released.Next == noNext || next < released.Next {
			released.Next = next
		}
	}
	if g.full { // the buckets stay due
		released.Next = max(released.Next, roomLook)
	}
	return released
}

// giving is one decision about permits.
type giving struct {
	*Store
	now        time.Time
	limit      int
	due        []permit.Ref // the buckets to check
	buckets    map[permit.Ref]*permit.Bucket
	tasks      []*Task
	candidates []permit.Candidate
	rooms      map[string]*queueRoom
	full       bool // tasks stay blocked because their queues or topics have no room
	admitted   int
}

// queueRoom says how many more tasks of a queue, and of its topics, may get permits.
type queueRoom struct {
	permits *slots.Permits
	left    int
	topics  map[string]*int
	slots   slots.Queue
}

// readRooms returns the room in each queue.
func (d *database) readRooms(now time.Time, known map[string]*slots.Permits) map[string]*queueRoom {
	rooms, permits := make(map[string]*queueRoom), make(map[string]map[string]int)
	for i := range d.tasks {
		t := &d.tasks[i]
		if rooms[t.Queue] == nil {
			rooms[t.Queue] = &queueRoom{topics: make(map[string]*int), slots: slots.Queue{Executors: d.executors(t.Queue), Held: make(map[string]int)}}
			permits[t.Queue] = make(map[string]int)
		}
		if t.State != holdfast.Running && (t.State != holdfast.Ready || t.DueAt.After(now)) {
			continue
		}
		row := d.topics.row(t.ID)
		permitted := slices.ContainsFunc(d.permits, func(p Permit) bool { return p.Task == t.ID })
		if permitted {
			permits[t.Queue][t.Topic]++
		}
		if row != nil && (permitted || row.phase == hasSlot) {
			rooms[t.Queue].slots.Held[t.Topic]++
		}
	}
	for name, room := range rooms {
		if known[name] == nil {
			known[name] = new(slots.Permits)
		}
		room.permits = known[name]
		room.permits.Observe(now, permits[name])
		room.slots.Rates = &room.permits.Rates
		room.left, _ = room.permits.Room(room.slots.Executors)
	}
	return rooms
}

// room returns the room of a task.
func (g *giving) room(t *Task) []*int {
	q := g.rooms[t.Queue]
	if t.Topic == "" {
		return []*int{&q.left}
	}
	if q.topics[t.Topic] == nil {
		q.slots.Several = slices.ContainsFunc(g.db.topics.turns, func(turn topicTurn) bool {
			name, _ := holdfast.SplitSubqueue(turn.subqueue)
			return name == t.Queue && turn.topic != t.Topic
		})
		q.topics[t.Topic] = new(q.slots.FreeFor(t.Topic))
	}
	return []*int{&q.left, q.topics[t.Topic]}
}

// choose reads the due buckets and their blocked tasks.
func (g *giving) choose() {
	due := slices.DeleteFunc(slices.Clone(g.db.buckets), func(b bucket) bool { return b.nextAt.After(g.now) || g.db.gate(b.Gate).lifted })
	slices.SortStableFunc(due, func(a, b bucket) int { return a.nextAt.Compare(b.nextAt) })
	left := g.limit
	for i := 0; i < len(due) && left > 0; i++ {
		g.due = append(g.due, due[i].Ref)
		left -= min(g.read(due[i].Ref).Free(g.now, left), len(g.db.blockedIn(due[i].Ref)))
	}
	for _, ref := range g.due {
		for _, task := range g.db.blockedIn(ref) {
			if task.Blocked() {
				g.tasks = append(g.tasks, task)
			} else {
				task.Gate = 0
			}
		}
	}
	slices.SortFunc(g.tasks, func(a, b *Task) int { return cmp.Or(a.BlockedAt.Compare(b.BlockedAt), cmp.Compare(a.ID, b.ID)) })
	for _, task := range g.tasks {
		c := permit.Candidate{Task: task.ID, Since: task.BlockedAt, Tried: task.Attempt > 1, At: permit.Ref{Gate: task.Gate, Bucket: task.Bucket}, Needs: g.db.gateKeeping().needs(task), Rooms: g.room(task)}
		c.Closed = pauseOf(g.db.gates, task, g.now)
		for _, ref := range c.Needs {
			g.read(ref)
		}
		g.candidates = append(g.candidates, c)
	}
}

// read returns the state of a bucket.
func (g *giving) read(ref permit.Ref) *permit.Bucket {
	if b := g.buckets[ref]; b != nil {
		return b
	}
	gate := g.db.gate(ref.Gate)
	b := &permit.Bucket{Rate: gate.rate, Concurrency: gate.starts()}
	if gate.Breaker != nil {
		b.NotBefore = gate.Breaker.ProbeAt
	}
	for i := range g.db.permits {
		if g.db.permits[i].Ref == ref {
			b.InUse++
		}
	}
	if i := g.db.findBucket(ref); i >= 0 {
		row := &g.db.buckets[i]
		b.Allowed, b.Behind, b.Reserved = row.allowedAt, row.behind, g.db.reservation(row, g.now)
	}
	g.buckets[ref] = b
	return b
}

// decide gives permits to blocked tasks, and moves the other tasks to the gates that block them now.
func (g *giving) decide() {
	permits := slices.Clone(g.db.permits)
	for i, outcome := range permit.Decide(g.now, g.buckets, g.candidates, g.limit) {
		task, c := g.tasks[i], g.candidates[i]
		switch {
		case outcome.Admitted:
			for _, ref := range c.Needs {
				permits = append(permits, Permit{Ref: ref, Task: task.ID, Attempt: task.Attempt})
				if g.buckets[ref].Rate.Count > 0 {
					g.touch(ref)
				}
			}
			g.changing(task)
			task.DueAt, task.Gate = g.now, 0
			if row := g.db.topics.row(task.ID); row != nil { // the task does not also wait for a slot of its topic
				row.phase = hasSlot
			}
			g.rooms[task.Queue].permits.Give(task.Topic)
			g.admitted++
		case outcome.To != c.At:
			if g.buckets[outcome.To] != nil { // pauses have no buckets
				g.touch(outcome.To)
			}
			g.changing(task)
			task.Gate, task.Bucket = outcome.To.Gate, outcome.To.Bucket
		default:
			g.full = g.full || outcome.NoRoom
			continue
		}
		g.db.permits = permits
		g.changed("ReleaseBlocked", task, nil)
	}
}

// touch stores the state of a bucket, and keeps the time of its next check.
func (g *giving) touch(ref permit.Ref) {
	g.db.bucket(ref, g.now).allowedAt = inMicros(g.buckets[ref].Allowed)
}

// put stores the state of the due buckets. A bucket needs a row only if it blocks a task, keeps a permit, or allows
// fewer starts than a new bucket.
func (g *giving) put() {
	for _, ref := range g.due {
		state, row := g.buckets[ref], g.db.bucket(ref, g.now)
		row.allowedAt, row.behind, row.reserved = inMicros(state.Allowed), false, state.Reserved
		waiting := slices.ContainsFunc(g.db.blockedIn(ref), (*Task).Blocked)
		switch next := state.Next(g.now); {
		case waiting && next.IsZero():
			row.nextAt = store.BlockedUntil
		case waiting:
			row.nextAt, row.behind = inMicros(next), next.After(g.now)
		case state.Rate.Count > 0 && state.IdleAt().After(g.now):
			row.nextAt = inMicros(state.IdleAt())
		case state.Reserved.Task != 0:
			row.nextAt = inMicros(g.now.Add(permit.ReservedLook))
		default:
			g.db.buckets = slices.DeleteFunc(g.db.buckets, func(b bucket) bool { return b.Ref == ref })
		}
	}
}

// inMicros returns a time as a column stores it.
func inMicros(t time.Time) time.Time { return t.Truncate(time.Microsecond) }
