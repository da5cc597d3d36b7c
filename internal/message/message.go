// Package message defines the messages that are sent through the broker, and their encoding.
package message

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/internal/contain"
)

// Ticket is a hint that an attempt of a task may run. The store decides. A ticket is stale if the task is at a later
// attempt.
type Ticket struct {
	Task    holdfast.TaskID
	Attempt int
}

// MaxTickets is the maximum number of tickets in a message.
const MaxTickets = 1000

// PerMessage returns how many tickets to put in one message, given n tickets from the given number of calls.
//
// A message with 64 tickets costs a broker little more than a message with one. But a consumer that cannot run all
// tickets of a message publishes the rest again, which takes time. So tickets share a message only if there are
// hundreds of them, or if they are from many calls. Then separate messages would be most of the cost.
func PerMessage(n, calls int) int {
	switch {
	case calls >= 4:
		return min(max(n/8, 1), 64)
	case n >= 256:
		return min(n/16, 64)
	}
	return 1
}

// Message is one message in the broker. Exactly one field is set.
type Message struct {
	Tickets  []Ticket  // tasks to run
	Manifest *Manifest // in a holding queue
	Sentinel *Sentinel // in a main queue
}

// Manifest lists the tickets that a worker received together. It stays in a holding queue until all of them are
// settled.
type Manifest struct {
	Worker holdfast.WorkerID
	// Page is the number of the page. Each worker counts its pages from 1. Page is 0 if another process wrote the
	// manifest; the page cursors of the worker then do not cover it.
	Page    int64
	Tickets []Ticket
	// Rounds is how often a patrol has published the manifest again because tasks of it were still running.
	Rounds int
}

// Sentinel is a marker that a janitor publishes to a main queue. Queues are first in, first out. So when the sentinel
// is delivered, every ticket published before At has been delivered.
type Sentinel struct {
	Queue string
	At    time.Time // time of the store, read before the sentinel was published
}

// maxReason is the maximum length of an error of Decode, in characters. The janitor puts the text in a header of the
// quarantined message. If a header does not fit into a frame, the broker closes the connection at each try.
const maxReason = 100

// NewerError is the error of Decode for a message with a newer version than this build can decode.
type NewerError struct{ Version int }

// Error implements error.
func (e *NewerError) Error() string {
	return fmt.Sprintf("message version %d is newer than %d, the latest that this build can decode", e.Version, Version)
}

// Decode decodes a message. It returns a NewerError for a message with a newer version, which belongs in the unread
// queue. Any other error means that the message is malformed and belongs in the quarantine queue. The error text is one
// short line.
func Decode(body []byte) (Message, error) {
	message, err := contain.Value(func() (Message, error) { return decode(body) })
	if errors.As(err, new(*NewerError)) {
		return Message{}, err
	}
	if err != nil {
		return Message{}, errors.New(clip(err.Error()))
	}
	return message, nil
}

// maxMessage is larger than any valid message: a thousand tickets with the largest numbers need 34 kB.
const maxMessage = 64 << 10

func decode(body []byte) (Message, error) {
	if len(body) > maxMessage { // before the parser, whose errors may be as long as its input
		return Message{}, fmt.Errorf("not a holdfast message: %d bytes are more than %d", len(body), maxMessage)
	}
	w, ok := scanEncoding(body)
	if !ok {
		var err error
		if w, err = parseEncoding(body); errors.As(err, new(*NewerError)) {
			return Message{}, err
		} else if err != nil {
			return Message{}, fmt.Errorf("not a holdfast message: %w", err)
		}
	}
	if w.Version < 1 {
		return Message{}, fmt.Errorf("not a holdfast message: version %d", w.Version)
	}
	if w.Sentinel != nil {
		at := w.Sentinel.UTC() // the year may differ in UTC, and Encode cannot write every year
		if w.Queue == "" || len(w.Tickets) > 0 || w.Worker != 0 || w.Page != 0 || w.Rounds != 0 || at.Year() < 1 || at.Year() > 9999 {
			return Message{}, errors.New("a sentinel carries a queue and a time only")
		}
		return Message{Sentinel: &Sentinel{w.Queue, at}}, nil
	}
	tickets, err := decodeTickets(w.Tickets)
	if err != nil {
		return Message{}, err
	}
	switch {
	case w.Queue != "":
		return Message{}, errors.New("only a sentinel names a queue")
	case w.Worker < 0 || w.Page < 0 || w.Rounds < 0 || w.Worker == 0 && w.Rounds != 0 || w.Worker == 0 && w.Page != 0:
		return Message{}, fmt.Errorf("worker %d, page %d is not a manifest", w.Worker, w.Page)
	case w.Worker > 0:
		return Message{Manifest: &Manifest{holdfast.WorkerID(w.Worker), w.Page, tickets, w.Rounds}}, nil
	}
	return Message{Tickets: tickets}, nil
}

func decodeTickets(pairs [][2]int64) ([]Ticket, error) {
	if len(pairs) == 0 || len(pairs) > MaxTickets {
		return nil, fmt.Errorf("a message carries 1 to %d tickets, not %d", MaxTickets, len(pairs))
	}
	tickets := make([]Ticket, len(pairs))
	for i, pair := range pairs {
		if pair[0] <= 0 || pair[1] <= 0 || pair[1] > 1<<31-1 {
			return nil, fmt.Errorf("ticket %d of task %d, attempt %d is out of range", i+1, pair[0], pair[1])
		}
		tickets[i] = Ticket{holdfast.TaskID(pair[0]), int(pair[1])}
	}
	return tickets, nil
}

// clip returns at most maxReason characters of text as valid UTF-8.
func clip(text string) string {
	characters := []rune(strings.ReplaceAll(text, "\x00", "\uFFFD"))
	if len(characters) > maxReason {
		characters = append(characters[:maxReason-1], '…')
	}
	return string(characters)
}
