package daemon

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/configs"
	"github.com/holdfastq/holdfast/consumer/webhook"
	"github.com/holdfastq/holdfast/janitor"
	"github.com/holdfastq/holdfast/store"
	"github.com/holdfastq/holdfast/surface"
)

// noticesType is the type in the body of a call. A body of another form needs another type.
const noticesType = "holdfast.notices"

// noticeText is the maximum number of characters of a text in a call, such as an error or a note.
const noticeText = 1000

// notices is the body of a call that announces events.
type notices struct {
	Type   string   `json:"type"`
	Events []notice `json:"events"`
}

// notice is one event in the body of a call. The kind says which of the last three members it has.
type notice struct {
	Kind      store.NoticeKind   `json:"kind"`
	At        time.Time          `json:"at"`
	Group     *groupNotice       `json:"group,omitempty"`
	Operation *surface.Operation `json:"operation,omitempty"`
	Queue     *lateQueue         `json:"queue,omitempty"`
}

// groupNotice is a group of dead tasks in a notice. Its own members hide those of the group.
type groupNotice struct {
	store.DeathGroup
	State      any `json:"state,omitempty"`
	LastHour   any `json:"last_hour,omitempty"`
	ResolvedAt any `json:"resolved_at,omitempty"`
	Version    any `json:"version,omitempty"`
}

// lateQueue is a queue whose oldest due task is too old.
type lateQueue struct {
	Queue     string           `json:"queue"`
	OldestDue surface.Duration `json:"oldest_due"`
}

// newNotify returns the options by which the janitor announces events, and nil if the configuration has no URL. It
// returns an ErrInvalid if deliver refuses the URL.
func newNotify(c configs.Notify, deliver *webhook.Handler) (*janitor.Notify, error) {
	if c.URL == "" {
		return nil, nil
	}
	n := &janitor.Notify{Queue: c.Queue, MinTasks: c.MinTasks, OldestTask: c.OldestTask, Compose: func(found []store.Notice) (holdfast.NewTask, error) {
		body, err := json.Marshal(bodyOf(found))
		if err != nil {
			return holdfast.NewTask{}, err
		}
		payload, err := json.Marshal(webhook.Payload{URL: c.URL, Body: body, SecretRef: c.Secret})
		return holdfast.NewTask{Type: webhook.Type, Payload: payload}, err
	}}
	for _, kind := range c.Kinds {
		n.Kinds = append(n.Kinds, store.NoticeKind(kind))
	}
	sample, err := n.Compose(nil)
	if err == nil {
		err = deliver.Validate(sample.Payload)
	}
	if err != nil {
		return nil, fmt.Errorf("notify.url: %w", err)
	}
	return n, nil
}

// bodyOf returns the body of the call that announces events.
func bodyOf(found []store.Notice) notices {
	body := notices{Type: noticesType, Events: []notice{}}
	for _, f := range found {
		event := notice{Kind: f.Kind, At: f.At}
		switch f.Kind {
		case store.NoticeOperationStopped:
			o := surface.OperationOf(f.Operation)
			o.Patch = nil // a patch may be long, and has parts of payloads
			o.Query, o.Note, o.Reason = shortened(o.Query), shortened(o.Note), shortened(o.Reason)
			event.Operation = &o
		case store.NoticeQueueLate:
			event.Queue = &lateQueue{f.Queue.Name, surface.Duration(f.Queue.OldestDue)}
		default:
			group := groupNotice{DeathGroup: f.Group}
			group.Error, group.Note = shortened(group.Error), shortened(group.Note)
			event.Group = &group
		}
		body.Events = append(body.Events, event)
	}
	return body
}

// shortened returns at most noticeText characters of text.
func shortened(text string) string {
	if runes := []rune(text); len(runes) > noticeText {
		return string(runes[:noticeText-1]) + "…"
	}
	return text
}
