package store

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/holdfastq/holdfast"
)

// DeathFilter selects dead tasks. The zero value selects all.
type DeathFilter struct {
	Type        string
	Queue       string
	Fingerprint string
	// Since and Until, if not zero, select the tasks that died in [Since, Until).
	Since, Until time.Time
	// Resolved selects resolved groups instead of all others. Without Queue, Since and Until, these include groups that
	// no longer have dead tasks.
	Resolved bool
	Limit    int // at most this many groups; 0 means 50
}

// DeathGroup describes a group and its dead tasks that match a filter.
type DeathGroup struct {
	Fingerprint string          `json:"group"`
	Type        string          `json:"type"`
	Class       string          `json:"class"`            // of the error
	Host        string          `json:"host,omitempty"`   // of the target, for deliveries
	Status      int             `json:"status,omitempty"` // of the response, for deliveries; 0 if none arrived
	Tasks       int64           `json:"tasks"`            // that match
	FirstAt     time.Time       `json:"first_at"`         // the first known death of the group, even if that task does not match
	LastAt      time.Time       `json:"last_at"`          // the last one
	Sample      holdfast.TaskID `json:"sample"`           // the matching task with the highest id; if none matches, the last sample, which may be deleted
	Error       string          `json:"error"`            // the last error of the sample
	Note        string          `json:"note"`
	Owner       string          `json:"owner"`
	State       GroupState      `json:"state"`
	LastHour    int64           `json:"last_hour"`            // how many of Tasks died in the last hour
	ResolvedAt  time.Time       `json:"resolved_at,omitzero"` // when a person last resolved the group; zero if it is open
	Version     int64           `json:"version"`              // increases with each change by a person; initially 1
}

// GroupState is the state of a group for the people who handle it.
type GroupState string

// The states of a group.
const (
	GroupOpen     GroupState = "open"
	GroupResolved GroupState = "resolved"
	GroupReturned GroupState = "returned" // a task with its fingerprint died after a person had resolved the group
)

// MaxCountedGroups is the maximum number of groups that CountDeathGroups counts.
const MaxCountedGroups = 10_000

// GroupCounts is the result of Deaths.CountDeathGroups.
type GroupCounts struct{ Open, Returned int }

// DeathGroupDetails is all data about one group.
type DeathGroupDetails struct {
	DeathGroup
	Queues []GroupQueue // the queues of its dead tasks, by number of tasks, the largest first
	// Hours has the numbers of its dead tasks by time of death: in the last hour, in the hour before, and so on.
	Hours [24]int64
}

// GroupQueue is the number of dead tasks of a group in one queue.
type GroupQueue struct {
	Queue string `json:"queue"`
	Tasks int64  `json:"tasks"`
}

// GroupChange is a change of a group by a person.
type GroupChange struct {
	Fingerprint string
	Action      Action // ActionNote, ActionAssign, ActionResolve or ActionReopen
	Text        string // the new note or the new owner, at most MaxNote or MaxOwner bytes; "" removes it
	Version     int64  // the version that the person has read; 0 accepts any version
}

// GroupValues are the values of a group that a person can change. An audit entry has the replaced values.
type GroupValues struct {
	Note       *string    `json:"note,omitempty"`
	Owner      *string    `json:"owner,omitempty"`
	State      GroupState `json:"state,omitempty"`
	ResolvedAt time.Time  `json:"resolved_at,omitzero"`
}

// Of returns the group after the change, and the audit entry with the values before and after. The entry is nil if the
// change makes no difference. Of returns an ErrConflict if the group has another version than the change requires. It
// returns an ErrInvalid if the action does not apply to groups or the text is too long.
func (c GroupChange) Of(group DeathGroup) (DeathGroup, *AuditEntry, error) {
	if c.Version != 0 && c.Version != group.Version {
		return group, nil, fmt.Errorf("%w: group %s has changed since it was read", holdfast.ErrConflict, c.Fingerprint)
	}
	if limit := map[Action]int{ActionNote: MaxNote, ActionAssign: MaxOwner}[c.Action]; len(c.Text) > limit {
		return group, nil, fmt.Errorf("%w: the text of %s has %d bytes, the limit is %d", holdfast.ErrInvalid, c.Action, len(c.Text), limit)
	}
	var before, after GroupValues
	next := group
	switch c.Action {
	case ActionNote:
		next.Note = c.Text
		before.Note, after.Note = &group.Note, &next.Note
	case ActionAssign:
		next.Owner = c.Text
		before.Owner, after.Owner = &group.Owner, &next.Owner
	case ActionResolve:
		next.State = GroupResolved
	case ActionReopen:
		next.State = GroupOpen
	default:
		return group, nil, fmt.Errorf("%w: %q is not an action on a group", holdfast.ErrInvalid, c.Action)
	}
	if next == group {
		return group, nil, nil
	}
	if next.State != group.State {
		before.State, before.ResolvedAt, after.State = group.State, group.ResolvedAt, next.State
	}
	entry := AuditEntry{Action: c.Action, Subject: GroupSubject(c.Fingerprint)}
	var err error
	if entry.Before, err = json.Marshal(before); err == nil {
		entry.After, err = json.Marshal(after)
	}
	return next, &entry, err
}

// Limits of GroupChange.Text.
const (
	MaxNote  = 16 << 10
	MaxOwner = 255
)

// GroupSubject returns the subject of the audit entries of a group.
func GroupSubject(fingerprint string) string { return "group " + fingerprint }
