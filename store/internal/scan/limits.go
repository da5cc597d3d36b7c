package scan

import (
	"strings"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/internal/permit"
	"github.com/holdfastq/holdfast/store"
)

// Limit is a limit and its use, as {{gate}} and {{limit}} in sql/parts.sql of each adapter select it.
type Limit struct {
	Gate
	RateCount   int
	RatePer     time.Duration
	Concurrency int
	InUse       int
}

// Value returns the limit.
func (r Limit) Value() store.Limit {
	gate := r.Gate.Value()
	return store.Limit{
		ID: gate.ID, Scope: store.Scope{Subject: gate.Subject, Per: gate.Per},
		Rate: store.Rate{Count: r.RateCount, Per: r.RatePer}, Concurrency: r.Concurrency, Actor: gate.Actor, SetAt: gate.ClosedAt,
	}
}

// Use returns the limit and its use.
func (r Limit) Use() store.LimitUse {
	return store.LimitUse{Limit: r.Value(), InUse: r.InUse, Blocked: r.Blocked}
}

// TaskLimit is a limit or a breaker that a task waits for.
type TaskLimit struct {
	Limit
	Reserved
	Bucket string
	Ahead  int
}

// Value returns the limit.
func (r TaskLimit) Value() store.TaskLimit {
	return store.TaskLimit{Limit: r.Limit.Value(), Breaker: r.Gate.Value().Breaker, Bucket: r.Bucket, InUse: r.InUse, Blocked: r.Blocked, Ahead: r.Ahead}
}

// perKind is the text between store.GateLimit and the value of store.Per in the column kind.
const perKind = store.GateLimit + " per "

// KindOf returns the value of the column kind for a limit.
func KindOf(per store.Per) store.GateKind {
	if per == store.PerScope {
		return store.GateLimit
	}
	return perKind + store.GateKind(per)
}

// fromKind returns the kind and the value of store.Per that a value of the column kind means.
func fromKind(kind store.GateKind) (store.GateKind, store.Per) {
	if per, isLimit := strings.CutPrefix(string(kind), string(perKind)); isLimit {
		return store.GateLimit, store.Per(per)
	}
	return kind, store.PerScope
}

// Bucket is a bucket of a limit.
type Bucket struct {
	GateID    store.ID
	Bucket    string
	AllowedAt time.Time
	Behind    bool
	Reserved
	RateCount    *int
	RatePer      time.Duration
	Concurrency  *int
	ReservedFrom time.Time
	ProbeAt      time.Time
	InUse        int
	Blocked      int // number of blocked tasks, at most as many as were counted
}

// Ref returns the name of the bucket.
func (r *Bucket) Ref() permit.Ref { return permit.Ref{Gate: r.GateID, Bucket: r.Bucket} }

// Value returns the state of the bucket.
func (r *Bucket) Value() *permit.Bucket {
	b := &permit.Bucket{InUse: r.InUse, NotBefore: r.ProbeAt, Allowed: r.AllowedAt, Behind: r.Behind}
	if r.RateCount != nil {
		b.Rate = store.Rate{Count: *r.RateCount, Per: r.RatePer}
	}
	if r.Concurrency != nil {
		b.Concurrency = *r.Concurrency
	}
	if r.ReservedTask != nil {
		b.Reserved = permit.Reservation{Task: *r.ReservedTask, Since: r.ReservedSince, From: r.ReservedFrom}
	}
	return b
}

// Reserved is the task for which a bucket keeps a permit. The reservation is valid only if Reserving has the same task
// and time.
type Reserved struct {
	ReservedTask  *holdfast.TaskID
	ReservedSince time.Time
}

// Reserving is a task for which buckets keep permits.
type Reserving struct {
	Task  holdfast.TaskID
	Since time.Time
}

// Candidate is a blocked task with one of the closed gates that apply to it. Needs is the gate, or 0 if there is none.
type Candidate struct {
	TaskID      holdfast.TaskID
	Attempt     int
	GateID      store.ID
	Bucket      string
	Gone        bool // the task has left the gate
	Busy        bool // another transaction has locked the task
	Needs       store.ID
	Permits     bool // the gate Needs gives permits
	NeedsBucket string
	BlockedAt   time.Time
	Queue       string // the subqueue
	Topic       string
}
