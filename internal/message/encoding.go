package message

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"time"
)

// wire is the JSON form of a Message: short keys, tickets as pairs, and a version that a
// reader checks first. Ids are numbers here: no person reads it.
type wire struct {
	Version  int        `json:"v"`
	Tickets  [][2]int64 `json:"t,omitempty"`
	Run      int64      `json:"run,omitempty"`
	Page     int64      `json:"page,omitempty"`
	Rounds   int        `json:"rounds,omitempty"`
	Lane     string     `json:"lane,omitempty"`
	Sentinel *time.Time `json:"sentinel,omitempty"`
}

const wireVersion = 1

// begin is how every message with tickets begins that this build writes.
const begin = `{"v":1,"t":[`

// Encode returns the message's bytes.
func (m Message) Encode() []byte {
	tickets, manifest := m.Tickets, Manifest{}
	switch {
	case m.Manifest != nil:
		tickets, manifest = m.Manifest.Tickets, *m.Manifest
	case m.Sentinel != nil:
		body, err := json.Marshal(wire{Version: wireVersion, Lane: m.Sentinel.Lane, Sentinel: &m.Sentinel.At})
		if err != nil { // the only failure is a year beyond 9999
			panic(fmt.Sprintf("holdfast: encode message: %v", err))
		}
		return body
	}
	// By hand, for this is done for every task.
	body := append(make([]byte, 0, len(begin)+16*len(tickets)+64), begin...)
	for i, t := range tickets {
		if i > 0 {
			body = append(body, ',')
		}
		body = strconv.AppendInt(append(body, '['), int64(t.Task), 10)
		body = strconv.AppendInt(append(body, ','), int64(t.Attempt), 10)
		body = append(body, ']')
	}
	body = append(body, ']')
	body = appendMember(body, runMember, int64(manifest.Run))
	body = appendMember(body, pageMember, manifest.Page)
	body = appendMember(body, roundsMember, int64(manifest.Rounds))
	return append(body, '}')
}

const (
	runMember    = `,"run":`
	pageMember   = `,"page":`
	roundsMember = `,"rounds":`
)

func appendMember(body []byte, member string, value int64) []byte {
	if value == 0 {
		return body
	}
	return strconv.AppendInt(append(body, member...), value, 10)
}

// scanWire reads what Encode writes, to the letter; false for everything else, which may still be a message. It is many times
// faster than parseWire.
func scanWire(body []byte) (w wire, ok bool) {
	s := scanner{body, true}
	if !s.skip(begin) {
		return wire{}, false
	}
	w = wire{Version: wireVersion, Tickets: make([][2]int64, 0, bytes.Count(body, []byte("["))-1)}
	for more := true; more && s.ok; more = s.skip(",") {
		var pair [2]int64
		s.must("[")
		pair[0] = s.number()
		s.must(",")
		pair[1] = s.number()
		s.must("]")
		w.Tickets = append(w.Tickets, pair)
	}
	s.must("]")
	if s.skip(runMember) {
		w.Run = s.number()
	}
	if s.skip(pageMember) {
		w.Page = s.number()
	}
	if s.skip(roundsMember) {
		w.Rounds = int(s.number())
	}
	s.must("}")
	return w, s.ok && len(s.rest) == 0
}

// scanner reads text from the front, and remembers if it was ever not what it must be.
type scanner struct {
	rest []byte
	ok   bool
}

func (s *scanner) skip(text string) bool {
	if len(s.rest) < len(text) || string(s.rest[:len(text)]) != text {
		return false
	}
	s.rest = s.rest[len(text):]
	return true
}

func (s *scanner) must(text string) {
	if !s.skip(text) {
		s.ok = false
	}
}

// number reads a positive number that is sure to fit.
func (s *scanner) number() (n int64) {
	const digits = 18
	i := 0
	for ; i < len(s.rest) && i < digits && '0' <= s.rest[i] && s.rest[i] <= '9'; i++ {
		n = 10*n + int64(s.rest[i]-'0')
	}
	if i == 0 || s.rest[0] == '0' {
		s.ok = false
	}
	s.rest = s.rest[i:]
	return n
}

// parseWire reads any JSON that means the same.
func parseWire(body []byte) (w wire, err error) {
	decoder := json.NewDecoder(bytes.NewReader(body))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&w); err != nil {
		return wire{}, err
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return wire{}, errors.New("more than one JSON value")
	}
	return w, nil
}
