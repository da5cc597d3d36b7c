package api

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/internal/surface"
)

const (
	maxStreams  = 100
	streamEvery = time.Second // the least time between two pages
	// streamPause is how many times as long as the last page took a stream waits before the next one.
	streamPause = 5
	heartbeat   = 15 * time.Second
	writeLimit  = 10 * time.Second // a client that takes an event more slowly loses its stream
)

// TaskChanges is an event with what has changed in a page since the event before.
type TaskChanges struct {
	Tasks   []surface.ListedTask `json:"tasks" doc:"The tasks that are new in the page or have changed."`
	Removed []holdfast.TaskID    `json:"removed" doc:"The tasks that are no longer in the page."`
	Next    *holdfast.TaskID     `json:"next"`
}

// eventsRoute registers the route of the live list of tasks.
func (a *API) eventsRoute(described huma.API, op huma.Operation) {
	schemas := described.OpenAPI().Components.Schemas
	schemas.Schema(typeOf[surface.TaskPage](), true, "TaskPage")
	schemas.Schema(typeOf[TaskChanges](), true, "TaskChanges")
	op.Description += " Server-sent events: snapshot has a TaskPage, and change has TaskChanges."
	op.Responses["200"] = response("Events.", "text/event-stream", &huma.Schema{Type: huma.TypeString})
	huma.Register(described, op, func(ctx context.Context, in *query) (*huma.StreamResponse, error) {
		page, took, err := a.pageOf(ctx, in)
		if err != nil {
			return nil, a.failed(ctx, op, err)
		}
		select {
		case a.streams <- struct{}{}:
		default:
			p := newProblem(http.StatusServiceUnavailable, overloaded, "this process serves %d streams, which is the limit", maxStreams)
			p.retryAfter = heartbeat
			return nil, p
		}
		return &huma.StreamResponse{Body: func(c huma.Context) {
			defer func() { <-a.streams }()
			r, w := humago.Unwrap(c)
			a.stream(&eventWriter{w, http.NewResponseController(w)}, r, in, page, pauseAfter(took))
		}}, nil
	})
}

// pageOf reads the page of a stream, in its turn. It also returns how long the store took.
func (a *API) pageOf(ctx context.Context, in *query) (page surface.TaskPage, took time.Duration, err error) {
	for _, places := range []chan struct{}{a.streamPlaces, a.places} {
		leave, p := a.enter(ctx, places)
		if p != nil {
			return page, 0, p
		}
		defer leave()
	}
	limited, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	began := time.Now()
	page, err = a.listTasks(limited, in)
	return page, time.Since(began), err
}

// pauseAfter returns how long a stream waits after a page that took so long.
func pauseAfter(took time.Duration) time.Duration { return max(streamEvery, streamPause*took) }

// stream sends page, and after a pause what changes in it, until the client is gone, the API stops, or the caller may no
// longer read.
func (a *API) stream(to *eventWriter, r *http.Request, in *query, page surface.TaskPage, pause time.Duration) {
	ctx := r.Context()
	if err := to.begin(page); err != nil {
		return
	}
	next := time.NewTimer(pause)
	defer next.Stop()
	sent := time.Now()
	for {
		select {
		case <-ctx.Done():
			return
		case <-a.stopping:
			return
		case <-next.C:
		}
		if !a.mayStay(ctx, callerOf(ctx)) {
			return
		}
		newest, took, err := a.pageOf(ctx, in)
		if p, ok := errors.AsType[*Problem](err); ok && p.Code == overloaded {
			newest = page // the next turn may come sooner
		} else if err != nil {
			return // the client connects again, and gets the problem if it persists
		} else {
			newest = withUnseen(newest, page, in.Limit)
		}
		next.Reset(pauseAfter(took))
		changes, changed := difference(page, newest)
		switch {
		case changed:
			err = to.send("change", changes)
		case time.Since(sent) >= heartbeat:
			err = to.send("", nil)
		default:
			continue
		}
		if err != nil {
			return
		}
		page, sent = newest, time.Now()
	}
}

// withUnseen returns the newest page with the tasks of the page before that the search did not reach, because it has
// stopped earlier this time. They may still match.
func withUnseen(newest, before surface.TaskPage, limit int) surface.TaskPage {
	for _, task := range before.Tasks {
		if newest.Next != nil && task.ID < *newest.Next && len(newest.Tasks) < limit {
			newest.Tasks = append(newest.Tasks, task)
		}
	}
	return newest
}

// difference returns what has changed from one page to the next.
func difference(before, now surface.TaskPage) (changes TaskChanges, changed bool) {
	changes = TaskChanges{Tasks: []surface.ListedTask{}, Removed: []holdfast.TaskID{}, Next: now.Next}
	text := func(task surface.ListedTask) string { return fmt.Sprintf("%+v %v", task.Task, task.Gate) }
	for _, task := range now.Tasks {
		i := slices.IndexFunc(before.Tasks, func(other surface.ListedTask) bool { return other.ID == task.ID })
		if i < 0 || text(before.Tasks[i]) != text(task) {
			changes.Tasks = append(changes.Tasks, task)
		}
	}
	for _, task := range before.Tasks {
		if !slices.ContainsFunc(now.Tasks, func(other surface.ListedTask) bool { return other.ID == task.ID }) {
			changes.Removed = append(changes.Removed, task.ID)
		}
	}
	return changes, len(changes.Tasks)+len(changes.Removed) > 0
}

// eventWriter sends server-sent events.
type eventWriter struct {
	w  http.ResponseWriter
	rc *http.ResponseController
}

// begin sends the header and the first event. The time limits of the server do not apply to a stream.
func (e *eventWriter) begin(page surface.TaskPage) error {
	if err := e.rc.SetReadDeadline(time.Time{}); err != nil && !errors.Is(err, http.ErrNotSupported) {
		return err
	}
	e.w.Header().Set("Content-Type", "text/event-stream")
	e.w.WriteHeader(http.StatusOK)
	return e.send("snapshot", page)
}

// send sends an event, or a comment if name is empty. The data is one line, because JSON escapes line breaks.
func (e *eventWriter) send(name string, value any) error {
	if err := e.rc.SetWriteDeadline(time.Now().Add(writeLimit)); err != nil && !errors.Is(err, http.ErrNotSupported) {
		return err
	}
	var text strings.Builder
	if name == "" {
		text.WriteString(":\n\n")
	} else {
		text.WriteString("event: " + name + "\ndata: ")
		if err := surface.WriteJSON(&text, value); err != nil {
			return err
		}
		text.WriteString("\n")
	}
	if _, err := e.w.Write([]byte(text.String())); err != nil {
		return err
	}
	return e.rc.Flush()
}
