package faults

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/holdfastq/holdfast/consumer/webhook"
)

// order sends an order as the given attempt and returns the status of the response, or 0 if there is none.
func order(ctx context.Context, t *testing.T, url, body, attempt string) int {
	t.Helper()
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set(webhook.AttemptHeader, attempt)
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return 0
	}
	_ = response.Body.Close()
	return response.StatusCode
}

func TestRecorderAnswersAsOrdered(t *testing.T) {
	t.Parallel()
	var lines bytes.Buffer
	server := httptest.NewServer(&recorder{lines: json.NewEncoder(&lines), refused: make(map[int]int), fail: func(err error) { t.Error(err) }})
	const body = `{"number":7,"failures":1,"takes_ms":1}`
	if got := order(t.Context(), t, server.URL, "nonsense", "1"); got != http.StatusBadRequest {
		t.Errorf("a malformed order was answered with %d", got)
	}
	if first, second := order(t.Context(), t, server.URL, body, "1"), order(t.Context(), t, server.URL, body, "2"); first != http.StatusServiceUnavailable || second != http.StatusOK {
		t.Errorf("the answers were %d and %d", first, second)
	}
	gone, leave := context.WithCancel(t.Context())
	arrived := make(chan struct{})
	go func() {
		defer close(arrived)
		order(gone, t, server.URL, `{"number":8,"takes_ms":60000}`, "1")
	}()
	leave()
	<-arrived
	server.Close() // waits for the end of every request
	var results []Result
	decoder := json.NewDecoder(&lines)
	for decoder.More() {
		var r Record
		if err := decoder.Decode(&r); err != nil {
			t.Fatal(err)
		}
		if r.Number == 7 {
			results = append(results, r.Result)
			if r.Attempt != len(results) || r.From != "127.0.0.1" || r.Ended.Before(r.Began) {
				t.Errorf("recorded %+v", r)
			}
		} else if r.Result != Left {
			t.Errorf("the canceled request is recorded as %+v", r)
		}
	}
	if len(results) != 2 || results[0] != Refused || results[1] != Answered {
		t.Errorf("the recorded results are %v", results)
	}
}

// full is a writer on a full disk.
type full struct{}

func (full) Write([]byte) (int, error) { return 0, errors.New("no space left") }

func TestRecorderStopsWhenItCannotWrite(t *testing.T) {
	t.Parallel()
	var why error
	server := httptest.NewServer(&recorder{lines: json.NewEncoder(full{}), refused: make(map[int]int), fail: func(err error) { why = err }})
	if status := order(t.Context(), t, server.URL, `{"number":7}`, "1"); status == http.StatusOK {
		t.Error("a request that was not recorded was answered with success")
	}
	server.Close()
	if why == nil {
		t.Error("the recorder did not stop")
	}
}
