// Package column converts values to the form in which both adapters store them.
package column

import (
	"encoding/json"
	"slices"
	"strings"
	"time"

	"github.com/holdfastq/holdfast"
)

// CountBlock is the number of ids in a block of the counters. The store counts a block in a fraction of a second.
const CountBlock = 100_000

// Micros returns a duration in microseconds. It rounds up, so that a positive duration stays positive.
func Micros(d time.Duration) int64 {
	whole := int64(d / time.Microsecond)
	if d%time.Microsecond > 0 {
		whole++
	}
	return whole
}

// Text returns text in a form that a column can store: valid UTF-8 without NUL.
func Text(text string) string {
	return strings.ReplaceAll(strings.ToValidUTF8(text, "\uFFFD"), "\x00", "\uFFFD")
}

// Payload returns the payload of a task as JSON.
func Payload(t *holdfast.NewTask) []byte {
	if len(t.Payload) == 0 {
		return []byte("null")
	}
	return t.Payload
}

// Tags returns the tags of a task as a JSON list, and "" if there are none.
func Tags(tags []string) string {
	if len(tags) == 0 {
		return ""
	}
	return List(tags)
}

// List returns texts as a JSON list in a form that a column can store.
func List(texts []string) string {
	list := make([]string, len(texts))
	for i, text := range texts {
		list[i] = Text(text)
	}
	encoded, _ := json.Marshal(list) // a list of strings always marshals
	return string(encoded)
}

// Details returns the details of a report as JSON that a column can store, or "" if there are none. Details that are
// not valid JSON become a JSON string, because one bad report must not make a whole batch of results fail.
func Details(r holdfast.Report) string {
	details := Text(string(r.Details))
	if details == "" || json.Valid([]byte(details)) {
		return details
	}
	quoted, _ := json.Marshal(details) // marshaling a string cannot fail
	return string(quoted)
}

// IsPlainSuccess reports whether a transition only changes the state of a running task to done.
func IsPlainSuccess(move *holdfast.Transition) bool {
	return move.Event == holdfast.EventComplete && move.To == holdfast.Done && move.Worker != 0 && !move.Recorded &&
		len(move.From) == 1 && move.From[0] == holdfast.Running
}

// Uniform reports whether the tasks differ only in their payloads and traces, are due at once, and have no unique key,
// key, topic or tags.
func Uniform(tasks []holdfast.NewTask) bool {
	first := &tasks[0]
	return !anyTask(tasks, func(t *holdfast.NewTask) bool {
		return t.Type != first.Type || t.Queue != first.Queue || t.Priority != first.Priority || t.MaxAttempts != first.MaxAttempts ||
			t.Delay > 0 || !t.At.IsZero() || t.Unique != "" || t.Key != "" || t.Topic != "" || len(t.Tags) > 0
	})
}

// Traced reports whether a task has a trace.
func Traced(tasks []holdfast.NewTask) bool {
	return anyTask(tasks, func(t *holdfast.NewTask) bool { return t.Trace != "" })
}

// anyTask is slices.ContainsFunc without a copy of each task.
func anyTask(tasks []holdfast.NewTask, is func(*holdfast.NewTask) bool) bool {
	for i := range tasks {
		if is(&tasks[i]) {
			return true
		}
	}
	return false
}

// OneClaim reports whether all moves have the same worker and the same attempt number. The moves of a worker nearly
// always do.
func OneClaim(moves []holdfast.Transition, indexes []int) bool {
	first := &moves[indexes[0]]
	return !slices.ContainsFunc(indexes, func(i int) bool { return moves[i].Worker != first.Worker || moves[i].Attempt != first.Attempt })
}
