package console

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/holdfastq/holdfast/internal/change"
	"github.com/holdfastq/holdfast/internal/diff"
	"github.com/holdfastq/holdfast/store"
)

// diffDocuments compares the editable parts of two versions of a task.
func diffDocuments(was, is change.Document) diff.Differences {
	return diff.Of(encodeDocument(was), encodeDocument(is))
}

// encodeDocument returns a document as JSON with all characters of its payload.
func encodeDocument(d change.Document) json.RawMessage {
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false)
	d.RunAt = d.RunAt.UTC()
	if encoder.Encode(d) != nil { // such as a payload that is not JSON
		return nil
	}
	return text.Bytes()
}

// revision is an edit of a task, or an undo of one.
type revision struct {
	store.AuditEntry
	Changes diff.Differences
	Large   bool // too large to compare
}

// revisionBytes is how many bytes of versions the page of a task compares.
const revisionBytes = 1 << 20

// editable has the members of a store.Version that a person can edit.
var editable = []string{"payload", "queue", "priority", "max_attempts", "run_at", "tags", "skipped_validation"}

// revisionsOf returns the edits among audit entries.
func revisionsOf(entries []store.AuditEntry) (list []revision) {
	left := revisionBytes
	for _, e := range entries {
		if e.Action != store.ActionEdit && e.Action != store.ActionUndo {
			continue
		}
		if left -= len(e.Before) + len(e.After); left < 0 {
			list = append(list, revision{AuditEntry: e, Large: true})
			continue
		}
		if changes := diff.Of(editableOf(e.Before), editableOf(e.After)); changes.Any() {
			list = append(list, revision{AuditEntry: e, Changes: changes})
		}
	}
	return list
}

// editableOf returns the members of a version that a person can edit.
func editableOf(version json.RawMessage) json.RawMessage {
	var kept bytes.Buffer
	kept.WriteByte('{')
	for _, m := range diff.Members(version) {
		if slices.Contains(editable, m.Name) {
			if kept.Len() > 1 {
				kept.WriteByte(',')
			}
			fmt.Fprintf(&kept, "%q:%s", m.Name, m.Value)
		}
	}
	kept.WriteByte('}')
	return kept.Bytes()
}
