// Package column turns values into what the columns of both adapters hold.
package column

import (
	"encoding/json"
	"strings"
	"time"

	"github.com/holdfastq/holdfast"
)

// Micros returns a duration in whole microseconds, rounded up so that a positive one stays positive.
func Micros(d time.Duration) int64 {
	whole := int64(d / time.Microsecond)
	if d%time.Microsecond > 0 {
		whole++
	}
	return whole
}

// Text returns text that a column can hold: valid UTF-8 without NUL.
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

// Details returns the details of a report as JSON that a column can hold, or "" if there are none. Details that are no
// JSON become a JSON string, because one bad report must not make a whole batch of results fail.
func Details(r holdfast.Report) string {
	details := Text(string(r.Details))
	if details == "" || json.Valid([]byte(details)) {
		return details
	}
	quoted, _ := json.Marshal(details) // of a string, which cannot fail
	return string(quoted)
}

// HasReport reports whether a move leaves a row among the attempts of its task.
func HasReport(r holdfast.Report) bool {
	return r.Class != "" || r.Error != "" || r.Stack != "" || len(r.Details) > 0
}

// IsPlainSuccess reports whether a move changes nothing but the state of a running task to done.
func IsPlainSuccess(move *holdfast.Transition) bool {
	return move.Event == holdfast.EventComplete && move.To == holdfast.Done && move.Run != 0 && !HasReport(move.Report) &&
		len(move.From) == 1 && move.From[0] == holdfast.Running
}
