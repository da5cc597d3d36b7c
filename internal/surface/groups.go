package surface

import (
	"context"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/app"
	"github.com/holdfastq/holdfast/store"
)

// GroupEvent is what a notice has about a group of dead tasks.
type GroupEvent struct {
	Group   string          `json:"group"`
	Type    string          `json:"type"`
	Class   string          `json:"class"`
	Host    string          `json:"host,omitempty"`
	Status  int             `json:"status,omitempty"`
	Tasks   int64           `json:"tasks"`
	FirstAt time.Time       `json:"first_at"`
	LastAt  time.Time       `json:"last_at"`
	Sample  holdfast.TaskID `json:"sample"`
	Error   string          `json:"error"`
	Note    string          `json:"note"`
	Owner   string          `json:"owner"`
}

// GroupEventOf returns the form of a group in a notice.
func GroupEventOf(g store.DeathGroup) GroupEvent {
	return GroupEvent{
		Group: g.Fingerprint, Type: g.Type, Class: g.Class, Host: g.Host, Status: g.Status, Tasks: g.Tasks,
		FirstAt: g.FirstAt, LastAt: g.LastAt, Sample: g.Sample, Error: g.Error, Note: g.Note, Owner: g.Owner,
	}
}

// DeathGroup is a group of dead tasks.
type DeathGroup struct {
	GroupEvent
	State      store.GroupState `json:"state"`
	LastHour   int64            `json:"last_hour"`
	ResolvedAt time.Time        `json:"resolved_at,omitzero"`
	Version    int64            `json:"version"`
}

// DeathGroupOf returns the form of a group.
func DeathGroupOf(g store.DeathGroup) DeathGroup {
	return DeathGroup{GroupEvent: GroupEventOf(g), State: g.State, LastHour: g.LastHour, ResolvedAt: g.ResolvedAt, Version: g.Version}
}

// DeathGroupDetails is everything about one group.
type DeathGroupDetails struct {
	DeathGroup
	Queues []GroupQueue `json:"queues"`
	// Hours are the numbers of tasks that died in each of the last 24 hours, the last hour first.
	Hours   [24]int64          `json:"hours"`
	History []store.AuditEntry `json:"history"` // the changes by people, newest first
}

// GroupQueue is the number of dead tasks of a group in one queue.
type GroupQueue struct {
	Queue string `json:"queue"`
	Tasks int64  `json:"tasks"`
}

// groupHistory is how many changes the details of a group have at most.
const groupHistory = 50

// Group reads everything about one group of dead tasks. It returns an ErrNotFound if the group is not known.
func Group(ctx context.Context, b *app.Backend, fingerprint string) (DeathGroupDetails, error) {
	found, err := b.Store.DeathGroup(ctx, fingerprint)
	if err != nil {
		return DeathGroupDetails{}, err
	}
	history, err := b.Store.AuditLog(ctx, store.AuditFilter{Subject: store.GroupSubject(fingerprint), Limit: groupHistory})
	queues := Each(found.Queues, func(q store.GroupQueue) GroupQueue { return GroupQueue(q) })
	return DeathGroupDetails{DeathGroupOf(found.DeathGroup), queues, found.Hours, append([]store.AuditEntry{}, history...)}, err
}
