package console

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"slices"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/api"
	"github.com/holdfastq/holdfast/internal/change"
	"github.com/holdfastq/holdfast/internal/explain"
	"github.com/holdfastq/holdfast/store"
	"github.com/holdfastq/holdfast/surface"
)

// task is the view of a task.
type task struct {
	Now time.Time
	surface.TaskDetails
	Explained explain.Explanation
	Attempts  []attempt // the newest first
	Body      *node     // the payload
	Raw       string
	Result    *node // the output; nil if there is none
	Tag       string
	Group     string // the fingerprint of the group of a dead task; "" if it has none
	Revisions []revision
	Editable  bool // the state allows an edit
	Audit     []surface.AuditEntry
}

// attempt is an attempt of the timeline.
type attempt struct {
	holdfast.Attempt
	Took    time.Duration
	Details *node
}

// auditLimit is the number of audit entries that the page of a task shows.
const auditLimit = 50

func (c *Console) task(ctx context.Context, r *request) (any, error) {
	id, err := holdfast.ParseTaskID(r.PathValue("id"))
	if err != nil {
		return nil, err
	}
	now, err := c.b.Store.Now(ctx)
	if err != nil {
		return nil, err
	}
	details, err := surface.Task(ctx, c.b, id)
	if err != nil {
		return nil, err
	}
	explained, err := c.b.Explain(ctx, id)
	if err != nil {
		return nil, err
	}
	entries, err := c.b.Store.AuditLog(ctx, store.AuditFilter{Task: id, Limit: auditLimit})
	if err != nil {
		return nil, err
	}
	v := task{Now: now, TaskDetails: details, Explained: explained, Tag: api.TaskTag(details.Task), Audit: surface.Each(entries, surface.AuditEntryOf), Raw: string(details.Payload)}
	v.Body = nodeOf(details.Payload)
	v.Revisions, v.Editable = revisionsOf(entries), slices.Contains(change.Allowed(store.ActionEdit), details.State)
	if len(details.Output) > 0 {
		v.Result = nodeOf(details.Output)
	}
	for _, a := range details.Attempts {
		row := attempt{Attempt: a}
		if !a.StartedAt.IsZero() {
			row.Took = a.FinishedAt.Sub(a.StartedAt)
		}
		if len(a.Details) > 0 {
			row.Details = nodeOf(a.Details)
		}
		v.Attempts = append(v.Attempts, row)
	}
	slices.Reverse(v.Attempts)
	if details.State == holdfast.Dead && len(details.Attempts) > 0 {
		v.Group = holdfast.Fingerprint(details.Type, details.Attempts[len(details.Attempts)-1].Report())
	}
	return v, nil
}

// node is a value of a JSON document, as the page shows it: a tree that folds, with all digits of its numbers.
type node struct {
	Name     string // of a member; "" in an array and at the top
	Kind     string // object, array, string, number, bool or null
	Text     string // of a value without children
	Children []*node
	Fold     bool // large: closed at first
}

// A document with more values is shown as a text. An object or array with more than foldAbove values is closed at first.
const (
	maxNodes  = 2000
	foldAbove = 20
)

// nodeOf returns the tree of a document, or nil if the document is too large or is not JSON.
func nodeOf(document json.RawMessage) *node {
	decoder := json.NewDecoder(bytes.NewReader(document))
	decoder.UseNumber()
	left := maxNodes
	n, err := readNode(decoder, &left)
	if _, end := decoder.Token(); err != nil || !errors.Is(end, io.EOF) {
		return nil
	}
	n.Fold = false
	return n
}

var errLarge = errors.New("the document has too many values")

func readNode(d *json.Decoder, left *int) (*node, error) {
	if *left--; *left < 0 {
		return nil, errLarge
	}
	token, err := d.Token()
	if err != nil {
		return nil, err
	}
	switch token := token.(type) {
	case json.Delim:
		return readChildren(d, left, token == '{')
	case string:
		return &node{Kind: "string", Text: token}, nil
	case json.Number:
		return &node{Kind: "number", Text: token.String()}, nil
	case bool:
		if token {
			return &node{Kind: "bool", Text: "true"}, nil
		}
		return &node{Kind: "bool", Text: "false"}, nil
	}
	return &node{Kind: "null", Text: "null"}, nil
}

func readChildren(d *json.Decoder, left *int, object bool) (*node, error) {
	n := &node{Kind: "array"}
	if object {
		n.Kind = "object"
	}
	for d.More() {
		name := ""
		if object {
			token, err := d.Token()
			if err != nil {
				return nil, err
			}
			name, _ = token.(string)
		}
		child, err := readNode(d, left)
		if err != nil {
			return nil, err
		}
		child.Name = name
		n.Children = append(n.Children, child)
	}
	n.Fold = len(n.Children) > foldAbove
	_, err := d.Token()
	return n, err
}
