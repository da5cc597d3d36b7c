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
	RateCount   int   `db:"rate_count"`
	RatePer     int64 `db:"rate_per"` // microseconds
	Concurrency int
	InUse       int `db:"in_use"`
}

// Value returns the limit.
func (r *Limit) Value() store.Limit {
	gate := r.Gate.Value()
	return store.Limit{
		ID: gate.ID, Scope: store.Scope{Subject: gate.Subject, Per: gate.Per},
		Rate: rateOf(r.RateCount, r.RatePer), Concurrency: r.Concurrency, Actor: gate.Actor, SetAt: gate.ClosedAt,
	}
}

// Use returns the limit and its use.
func (r *Limit) Use() store.LimitUse {
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
func (r *TaskLimit) Value() store.TaskLimit {
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

func rateOf(count int, per int64) store.Rate {
	return store.Rate{Count: count, Per: time.Duration(per) * time.Microsecond}
}

// Bucket is a bucket of a limit.
type Bucket struct {
	GateID    int64 `db:"gate_id"`
	Bucket    string
	AllowedAt Time `db:"allowed_at"`
	Behind    bool
	Reserved
	RateCount    *int   `db:"rate_count"`
	RatePer      *int64 `db:"rate_per"`
	Concurrency  *int
	ReservedFrom Time `db:"reserved_from"`
	ProbeAt      Time `db:"probe_at"`
	InUse        int  `db:"in_use"`
	Blocked      int  // number of blocked tasks, up to a limit
}

// Ref returns the name of the bucket.
func (r *Bucket) Ref() permit.Ref { return permit.Ref{Gate: store.ID(r.GateID), Bucket: r.Bucket} }

// Value returns the state of the bucket.
func (r *Bucket) Value() *permit.Bucket {
	b := &permit.Bucket{InUse: r.InUse, NotBefore: r.ProbeAt.Time, Allowed: r.AllowedAt.Time, Behind: r.Behind}
	if r.RateCount != nil && r.RatePer != nil {
		b.Rate = rateOf(*r.RateCount, *r.RatePer)
	}
	if r.Concurrency != nil {
		b.Concurrency = *r.Concurrency
	}
	if r.ReservedTask != nil {
		b.Reserved = permit.Reservation{Task: *r.ReservedTask, Since: r.ReservedSince.Time, From: r.ReservedFrom.Time}
	}
	return b
}

// Reserved is the task for which a bucket keeps a permit. The reservation is valid only if Reserving has the same task
// and time.
type Reserved struct {
	ReservedTask  *holdfast.TaskID `db:"reserved_task"`
	ReservedSince Time             `db:"reserved_since"`
}

// Reserving is a task for which buckets keep permits.
type Reserving struct {
	Task  holdfast.TaskID
	Since Time
}

// Candidate is a blocked task with one of the closed gates that apply to it. Needs is the gate, or 0 if there is none.
type Candidate struct {
	TaskID      holdfast.TaskID `db:"task_id"`
	Attempt     int
	GateID      int64 `db:"gate_id"`
	Bucket      string
	Gone        bool // the task has left the gate
	Busy        bool // another transaction has locked the task
	Needs       int64
	Permits     bool   // the gate Needs gives permits
	NeedsBucket string `db:"needs_bucket"`
	BlockedAt   Time   `db:"blocked_at"`
}
