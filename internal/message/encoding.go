package message

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"
	"time"
)

// encoding is the JSON form of a Message. It has short keys, tickets as pairs, and a version that readers check first.
// Ids are numbers here; JSON for people has them as strings.
type encoding struct {
	Version  int        `json:"v"`
	Tickets  [][2]int64 `json:"t,omitempty"`
	Worker   int64      `json:"worker,omitempty"`
	Page     int64      `json:"page,omitempty"`
	Rounds   int        `json:"rounds,omitempty"`
	Queue    string     `json:"queue,omitempty"`
	Sentinel *time.Time `json:"sentinel,omitempty"`
}

// Version is the version of the messages that this build writes, and the latest version that it decodes. Increase it by
// one for a change that builds of the previous version cannot decode. A new optional member needs no new version:
// Decode ignores unknown members.
const Version = 1

// begin is the beginning of every message with tickets that this build writes.
var begin = fmt.Sprintf(`{"v":%d,"t":[`, Version)

// Encode returns the encoded message.
func (m Message) Encode() []byte {
	tickets, manifest := m.Tickets, Manifest{}
	switch {
	case m.Manifest != nil:
		tickets, manifest = m.Manifest.Tickets, *m.Manifest
	case m.Sentinel != nil:
		body, err := json.Marshal(encoding{Version: Version, Queue: m.Sentinel.Queue, Sentinel: &m.Sentinel.At})
		if err != nil { // only a year after 9999 causes an error
			panic(fmt.Sprintf("holdfast: encode message: %v", err))
		}
		return body
	}
	// Every task needs a message, so this code avoids the slower json.Marshal.
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
	body = appendMember(body, workerMember, int64(manifest.Worker))
	body = appendMember(body, pageMember, manifest.Page)
	body = appendMember(body, roundsMember, int64(manifest.Rounds))
	return append(body, '}')
}

const (
	workerMember = `,"worker":`
	pageMember   = `,"page":`
	roundsMember = `,"rounds":`
)

func appendMember(body []byte, member string, value int64) []byte {
	if value == 0 {
		return body
	}
	return strconv.AppendInt(append(body, member...), value, 10)
}

// scanEncoding decodes exactly what Encode writes. It returns false for any other input, which may still be a message.
// It is many times faster than parseEncoding.
func scanEncoding(body []byte) (w encoding, ok bool) {
	s := scanner{body, true}
	if !s.skip(begin) {
		return encoding{}, false
	}
	w = encoding{Version: Version, Tickets: make([][2]int64, 0, bytes.Count(body, []byte("["))-1)}
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
	if s.skip(workerMember) {
		w.Worker = s.number()
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

// scanner reads text from the front. ok becomes false when the text has another form than required.
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

// number reads a positive number that fits into an int64.
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

// parseEncoding decodes any equivalent JSON, and ignores unknown members. It decodes the version first, because a newer
// version may encode the other members differently.
func parseEncoding(body []byte) (w encoding, err error) {
	var header struct {
		Version int `json:"v"`
	}
	if err := json.Unmarshal(body, &header); err != nil {
		return encoding{}, err
	}
	if header.Version > Version {
		return encoding{}, &NewerError{header.Version}
	}
	return w, json.Unmarshal(body, &w)
}
