// Package message has the messages that travel through the broker, and their encoding in both directions.
package message

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/holdfastq/holdfast"
)

// Ticket says that a task may be run at an attempt. It is a hint: the store
// decides. A ticket for an older attempt than the row's is stale.
type Ticket struct {
	Task    holdfast.TaskID
	Attempt int
}

// MaxTickets is how many tickets one message may carry.
const MaxTickets = 1000

// PerMessage is how many of n tickets that are published together, and are of so many calls, share a message. A broker carries a
// message with 64 tickets for little more than one with a single ticket. Consumers take no more of a message than they can run,
// and pass on the rest, which takes a moment. So only hundreds of tickets share, or those of many calls at once: a message for
// each of those would be most of what they cost.
func PerMessage(n, calls int) int {
	switch {
	case calls >= 4:
		return min(max(n/8, 1), 64)
	case n >= 256:
		return min(n/16, 64)
	}
	return 1
}

// Message is what travels through the broker: exactly one of the three is set.
type Message struct {
	Tickets  []Ticket  // tasks to run
	Manifest *Manifest // tasks that were taken, in a holding queue
	Sentinel *Sentinel // a marker in a lane
}

// Manifest lists the tickets a run took together. It stands in a holding queue
// for as long as one of them is open.
type Manifest struct {
	Run holdfast.RunID
	// Page numbers the pages of the run, from 1. It is 0 when another process than
	// the run wrote the manifest; then the run's cursors say nothing about it.
	Page    int64
	Tickets []Ticket
	// Rounds is how often a patrol has written it anew, because its tasks were still running.
	Rounds int
}

// Sentinel is a marker a janitor sends down a lane. Queues being first in first
// out, every ticket published before At had been delivered when it arrives.
type Sentinel struct {
	Lane string
	At   time.Time // by the store's clock, read before the sentinel was published
}

// maxReason bounds the text of an error of Decode, in characters. The text travels in a header of the quarantined
// message. A header that does not fit into a frame of the broker would end the connection at each try.
const maxReason = 100

// Decode reads what Encode wrote. Every error means the message is
// malformed and belongs into the quarantine, and its text says why in one short line.
func Decode(body []byte) (Message, error) {
	message, err := decode(body)
	if err != nil {
		return Message{}, errors.New(clip(err.Error()))
	}
	return message, nil
}

// maxMessage is more than any message of ours has: a thousand tickets of the largest numbers are 34 kB.
const maxMessage = 64 << 10

func decode(body []byte) (Message, error) {
	if len(body) > maxMessage { // not to be parsed first, for the parser's complaint may be as long
		return Message{}, fmt.Errorf("not a holdfast message: %d bytes are more than %d", len(body), maxMessage)
	}
	w, ok := scanWire(body)
	if !ok {
		var err error
		if w, err = parseWire(body); err != nil {
			return Message{}, fmt.Errorf("not a holdfast message: %w", err)
		}
	}
	if w.Version != wireVersion {
		return Message{}, fmt.Errorf("message version %d is not %d, the one this build reads", w.Version, wireVersion)
	}
	if w.Sentinel != nil {
		at := w.Sentinel.UTC() // whose year may be another one, and one that Encode cannot write
		if w.Lane == "" || len(w.Tickets) > 0 || w.Run != 0 || w.Page != 0 || w.Rounds != 0 || at.Year() < 1 || at.Year() > 9999 {
			return Message{}, errors.New("a sentinel carries a lane and a time only")
		}
		return Message{Sentinel: &Sentinel{w.Lane, at}}, nil
	}
	tickets, err := decodeTickets(w.Tickets)
	if err != nil {
		return Message{}, err
	}
	switch {
	case w.Lane != "":
		return Message{}, errors.New("only a sentinel names a lane")
	case w.Run < 0 || w.Page < 0 || w.Rounds < 0 || w.Run == 0 && w.Rounds != 0 || w.Run == 0 && w.Page != 0:
		return Message{}, fmt.Errorf("run %d, page %d is not a manifest", w.Run, w.Page)
	case w.Run > 0:
		return Message{Manifest: &Manifest{holdfast.RunID(w.Run), w.Page, tickets, w.Rounds}}, nil
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

// clip cuts text to maxReason characters of valid UTF-8.
func clip(text string) string {
	characters := []rune(strings.ReplaceAll(text, "\x00", "\uFFFD"))
	if len(characters) > maxReason {
		characters = append(characters[:maxReason-1], '…')
	}
	return string(characters)
}
