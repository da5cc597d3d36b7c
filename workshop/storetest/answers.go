package storetest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfastq/holdfast/store"
)

var answerTests = []test{
	{"answers a request once", testOnce},
	{"stores no answer if the request fails", testOnceFails},
	{"carries out one of many requests with the same key", testOnceConcurrently},
	{"deletes old answers", testPruneAnswers},
}

func (s *suite) once(r store.Request, body string) store.Answer {
	s.Helper()
	answer, err := s.Once(s.ctx, r, func(context.Context, store.Tx) (store.Answer, error) {
		return store.Answer{Status: 201, Body: body}, nil
	})
	s.must(err)
	return answer
}

func testOnce(s *suite) {
	first := store.Request{Scope: "a", Key: "k", Hash: "1"}
	if got, want := s.once(first, "one"), (store.Answer{Hash: "1", Status: 201, Body: "one"}); got != want {
		s.Errorf("the first answer is %+v, want %+v", got, want)
	}
	want := store.Answer{Hash: "1", Status: 201, Body: "one", Stored: true}
	if got := s.once(first, "two"); got != want {
		s.Errorf("the answer to the same request is %+v, want %+v", got, want)
	}
	if got := s.once(store.Request{Scope: "a", Key: "k", Hash: "2"}, "two"); got != want {
		s.Errorf("the answer to another request with the same key is %+v, want %+v", got, want)
	}
	others := []store.Request{{Scope: "b", Key: "k", Hash: "1"}, {Scope: "a", Key: "l", Hash: "1"}}
	for i, other := range others {
		if got := s.once(other, fmt.Sprint(i)); got.Stored || got.Body != fmt.Sprint(i) {
			s.Errorf("the answer to %+v is %+v", other, got)
		}
	}
	for i, other := range others {
		if got := s.once(other, "again"); !got.Stored || got.Body != fmt.Sprint(i) {
			s.Errorf("the stored answer to %+v is %+v", other, got)
		}
	}
	if got := s.once(first, "again"); got != want {
		s.Errorf("after other requests, the answer is %+v, want %+v", got, want)
	}
}

func testOnceFails(s *suite) {
	r, failure := store.Request{Scope: "a", Key: "k", Hash: "1"}, errors.New("no")
	_, err := s.Once(s.ctx, r, func(context.Context, store.Tx) (store.Answer, error) { return store.Answer{}, failure })
	if !errors.Is(err, failure) {
		s.Errorf("Once returned %v, want the error of the function", err)
	}
	if got := s.once(r, "one"); got.Stored || got.Body != "one" {
		s.Errorf("the answer after a failure is %+v", got)
	}
}

func testOnceConcurrently(s *suite) {
	var calls atomic.Int64
	var group sync.WaitGroup
	for i := range 10 {
		group.Go(func() {
			answer, err := s.Once(s.ctx, store.Request{Scope: "a", Key: "k", Hash: "1"}, func(context.Context, store.Tx) (store.Answer, error) {
				calls.Add(1)
				return store.Answer{Status: 200, Body: "one"}, nil
			})
			if err != nil || answer.Body != "one" {
				s.Errorf("call %d: %+v, %v", i, answer, err)
			}
		})
	}
	group.Wait()
	if calls.Load() != 1 {
		s.Errorf("%d requests with the same key were carried out", calls.Load())
	}
}

func testPruneAnswers(s *suite) {
	for i := range 3 {
		s.once(store.Request{Scope: "a", Key: fmt.Sprint(i), Hash: "1"}, "one")
	}
	if n, err := s.Prune(s.ctx, store.PruneAges{Answers: time.Hour}, 10); n != 0 || err != nil {
		s.Errorf("Prune of new answers returned %d, %v", n, err)
	}
	s.prune(store.PruneAges{Answers: time.Microsecond}, 3)
	if got := s.once(store.Request{Scope: "a", Key: "0", Hash: "2"}, "two"); got.Stored {
		s.Errorf("an answer was not deleted: %+v", got)
	}
}
