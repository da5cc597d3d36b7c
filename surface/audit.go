package surface

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/app"
	"github.com/holdfastq/holdfast/internal/diff"
	"github.com/holdfastq/holdfast/internal/search"
	"github.com/holdfastq/holdfast/store"
)

// AuditQuery is a request for a page of the audit log. The API has no member group: the details of a group have its
// history.
type AuditQuery struct {
	Task      string `query:"task" flag:"ID" doc:"Only changes of the task with this id."`
	Group     string `json:"group" flag:"FINGERPRINT" doc:"Only changes of the group with this fingerprint, or with its first digits."`
	Setting   string `query:"setting" flag:"KEY" doc:"Only changes of the setting with this key."`
	Operation int64  `query:"operation" flag:"ID" minimum:"0" doc:"Only changes of the operation with this id. Its changes of tasks need tasks."`
	// Tasks is the flag --tasks of "audit list".
	Tasks  bool   `query:"tasks" flag:"-" doc:"Include each change of a task that an operation made. Without it an operation has only its own entries."`
	Actor  string `query:"actor" flag:"NAME" doc:"Only changes by this person, or by worker or janitor."`
	Action string `query:"action" flag:"ACTION" enum:"retry,cancel,archive,restore,edit,purge,undo,create,revoke,note,assign,resolve,reopen,pause,trip,resume,set,unset,delete,run" doc:"Only changes of this kind."`
	Since  string `query:"since" flag:"TIME" doc:"Only changes at or after this time: 2h (ago), 2030-01-31, 2030-01-31 09:00 or 2030-01-31T09:00:00Z."`
	Until  string `query:"until" flag:"TIME" doc:"Only changes before this time."`
	Limit  int    `query:"limit" flag:"N" default:"50" minimum:"1" maximum:"1000" doc:"At most so many entries; a page ends early after 4 MiB."`
	Before int64  `query:"before" flag:"ID" minimum:"0" doc:"Only entries with a smaller id, which is the value next of the page before."`
}

// Check returns an error if the request is invalid.
func (r AuditQuery) Check() error {
	_, err := r.filter()
	return err
}

// filter returns the filter that the request describes.
func (r AuditQuery) filter() (f store.AuditFilter, err error) {
	f = store.AuditFilter{Operation: store.ID(r.Operation), Actor: r.Actor, Action: store.Action(r.Action), Before: store.ID(r.Before), Limit: r.Limit}
	f.Single = !r.Tasks && r.Task == ""
	if r.Task != "" {
		if f.Task, err = holdfast.ParseTaskID(r.Task); err != nil {
			return f, &MemberError{"task", err}
		}
	}
	switch {
	case r.Group != "" && r.Setting != "":
		return f, fmt.Errorf("%w: give a group or a setting, not both", holdfast.ErrInvalid)
	case r.Group != "":
		digits, _, err := holdfast.ParseFingerprint(r.Group)
		if err != nil {
			return f, &MemberError{"group", err}
		}
		f.Subject = store.GroupSubject(digits)
	case r.Setting != "":
		f.Subject = store.SettingSubject(r.Setting)
	}
	now := time.Now()
	for _, bound := range []struct {
		name, text string
		into       *time.Time
	}{{"since", r.Since, &f.Since}, {"until", r.Until, &f.Until}} {
		if bound.text == "" {
			continue
		}
		if *bound.into, err = search.Past(bound.text, now); err != nil {
			return f, &MemberError{bound.name, err}
		}
	}
	return f, nil
}

// AuditEntry is an entry of the audit log for people.
type AuditEntry struct {
	store.AuditEntry
	Changes []diff.Difference `json:"changes" doc:"What differs between before and after, at most 200 values. With a result it is empty."`
	More    int               `json:"more_changes,omitempty" doc:"How many values changes leaves out."`
	// Result is set in the first entry of an operation that is still stored.
	Result *OperationResult `json:"result,omitempty" doc:"How far the operation is now. Only the first entry of an operation has it."`
}

// OperationResult is how far an operation is.
type OperationResult struct {
	State   store.OperationState `json:"state"`
	Total   int64                `json:"total" doc:"Tasks that matched at the start."`
	Changed int64                `json:"changed"`
	Skipped int64                `json:"skipped" doc:"Tasks that another process had changed."`
	Refused int64                `json:"refused" doc:"Tasks that could not be changed."`
}

func (r *OperationResult) String() string {
	text := fmt.Sprintf("%s, %d of %d changed", r.State, r.Changed, r.Total)
	if r.Skipped > 0 {
		text += fmt.Sprintf(", %d skipped", r.Skipped)
	}
	if r.Refused > 0 {
		text += fmt.Sprintf(", %d refused", r.Refused)
	}
	return text
}

// AuditEntryOf returns the form of an entry, without a result.
func AuditEntryOf(e store.AuditEntry) AuditEntry {
	orEmpty := func(version json.RawMessage) json.RawMessage { // what is new or removed differs in each member
		if len(version) == 0 {
			return json.RawMessage("{}")
		}
		return version
	}
	found := diff.Of(orEmpty(e.Before), orEmpty(e.After))
	return AuditEntry{AuditEntry: e, Changes: append([]diff.Difference{}, found.List...), More: found.More}
}

// AuditPage is a page of the audit log.
type AuditPage struct {
	Entries []AuditEntry `json:"entries"`
	Next    *store.ID    `json:"next" doc:"The cursor of the next page, and null on the last page."`
}

// ListAudit reads a page of the audit log.
func ListAudit(ctx context.Context, b *app.Backend, r AuditQuery) (AuditPage, error) {
	var err error
	if r.Group != "" {
		if r.Group, err = b.Fingerprint(ctx, r.Group); err != nil {
			return AuditPage{}, err
		}
	}
	f, err := r.filter()
	if err != nil {
		return AuditPage{}, err
	}
	f.Limit++
	found, err := b.Store.AuditLog(ctx, f)
	if err != nil {
		return AuditPage{}, err
	}
	entries, next := pageOf(found, r.Limit, func(e store.AuditEntry) store.ID { return e.ID })
	if _, full := store.AuditPage(found); full && next == nil {
		next = &entries[len(entries)-1].ID
	}
	page := AuditPage{Each(entries, AuditEntryOf), next}
	for i := range page.Entries {
		e := &page.Entries[i]
		if e.Operation == 0 || e.Task != 0 || len(e.Before) > 0 {
			continue
		}
		o, err := b.Store.Operation(ctx, e.Operation)
		if errors.Is(err, holdfast.ErrNotFound) { // a janitor has deleted it
			continue
		}
		if err != nil {
			return AuditPage{}, err
		}
		e.Result = &OperationResult{o.State, o.Total, o.Changed, o.Skipped, o.Refused}
		e.Changes, e.More = []diff.Difference{}, 0
	}
	return page, nil
}
