package scan

import (
	"encoding/json"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/store"
)

// AuditEntry is an entry of the audit log.
type AuditEntry struct {
	ID        int64
	At        Time
	Actor     string
	Surface   store.Surface
	Reason    string
	Action    store.Action
	Task      holdfast.TaskID
	Operation int64
	Subject   string
	Before    string // JSON; empty: none
	After     string
}

// AuditEntries returns the entries of all rows.
func AuditEntries(rows []AuditEntry) []store.AuditEntry {
	entries := make([]store.AuditEntry, len(rows))
	for i, row := range rows {
		entries[i] = store.AuditEntry{
			ID: store.ID(row.ID), At: row.At.Time, Actor: store.Actor{Name: row.Actor, Surface: row.Surface, Reason: row.Reason},
			Action: row.Action, Task: row.Task, Operation: store.ID(row.Operation), Subject: row.Subject,
			Before: document(row.Before), After: document(row.After),
		}
	}
	return entries
}

// document returns text as JSON, and nil if it is empty.
func document(text string) json.RawMessage {
	if text == "" {
		return nil
	}
	return json.RawMessage(text)
}
