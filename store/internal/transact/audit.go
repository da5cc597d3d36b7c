package transact

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/holdfastq/holdfast/store"
	"github.com/holdfastq/holdfast/store/internal/column"
)

// AuditRow is an audit entry in the form that the statement audit_record reads.
type AuditRow struct {
	Actor     string        `json:"actor"`
	Surface   store.Surface `json:"surface"`
	Reason    string        `json:"reason"`
	Action    store.Action  `json:"action"`
	Task      int64         `json:"task"`      // 0: none
	Operation int64         `json:"operation"` // 0: none
	Subject   string        `json:"subject"`
	Before    *string       `json:"before"`
	After     *string       `json:"after"`
}

// EntryOf returns an entry about a subject.
func EntryOf(by store.Actor, action store.Action, subject string) AuditRow {
	return AuditRow{
		Actor: column.Text(by.Name), Surface: by.Surface, Reason: column.Text(by.Reason), Action: action,
		Subject: column.Text(subject),
	}
}

// Record adds entries of one actor to the audit log. It returns ErrInvalid if the actor is not valid.
func Record(ctx context.Context, tx Transaction, entries []AuditRow) error {
	if len(entries) == 0 {
		return nil
	}
	by := store.Actor{Name: entries[0].Actor, Reason: entries[0].Reason}
	if err := by.Validate(); err != nil {
		return err
	}
	return ChangeRows(ctx, tx, "audit_record", entries)
}

// SetDocuments sets the members Before and After. after may be nil.
func (r *AuditRow) SetDocuments(before store.Version, after *store.Version) error {
	was, err := before.Document()
	if err != nil {
		return err
	}
	r.Before = TextOf(was)
	if after == nil {
		return nil
	}
	is, err := after.Document()
	r.After = TextOf(is)
	return err
}

// TextOf returns a JSON document as a member of an AuditRow.
func TextOf(document json.RawMessage) *string {
	t := string(document)
	return &t
}

// Encode returns rows as JSON. The rows have only strings and numbers, so encoding cannot fail.
func Encode(value any) string {
	text, err := json.Marshal(value)
	if err != nil {
		panic(fmt.Sprintf("transact: %v", err))
	}
	return string(text)
}
