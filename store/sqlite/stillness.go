package sqlite

import (
	"os"
	"sync"
	"time"
)

// stillness remembers questions that had nothing as their answer, and until when that stays so unless somebody
// writes to the file. A janitor asks several times a second; where nothing happens, a look at the write-ahead
// log, which every commit of every process changes, is cheaper than the question.
type stillness struct {
	log string // path of the write-ahead log

	mu      sync.Mutex
	answers map[question]nothing
}

// question names what was asked, with what the answer depends on besides the file.
type question struct {
	what string
	with int64
}

type nothing struct {
	file  state
	until time.Time // by the store's clock, when the answer would become another one
	stale time.Time // likewise, when it is asked again in any case
}

// state is what a look at the write-ahead log shows.
type state struct {
	size     int64
	modified time.Time
}

// longestStill bounds how long an answer is given from memory. There are file systems whose times are of whole
// seconds, or of the moment before a slow disk has stored what others see only then.
const longestStill = time.Second

// unsettled is how long a change may hide another one behind it: the times of a file are those of a clock that
// ticks a few hundred times a second.
const unsettled = 50 * time.Millisecond

// look must come before the question is put to the file. It is not certain if the file was just written to.
func (s *stillness) look() (current state, certain bool) {
	info, err := os.Stat(s.log)
	if err != nil {
		return state{}, false
	}
	current = state{info.Size(), info.ModTime()}
	age := time.Since(current.modified)
	return current, age > unsettled
}

// holds reports whether the answer is still nothing, and until when at most.
func (s *stillness) holds(q question, now time.Time) (until time.Time, ok bool) {
	s.mu.Lock()
	answer, known := s.answers[q]
	s.mu.Unlock()
	if !known || !now.Before(answer.until) || !now.Before(answer.stale) {
		return time.Time{}, false
	}
	current, certain := s.look()
	return answer.until, certain && current == answer.file
}

// remember notes that the answer was nothing, for a file that was in the given state before.
func (s *stillness) remember(q question, file state, now, until time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.answers == nil {
		s.answers = make(map[question]nothing)
	}
	s.answers[q] = nothing{file, until, now.Add(longestStill)}
}
