package api_test

import (
	"bufio"
	"bytes"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/holdfastq/holdfast/api"
	"github.com/holdfastq/holdfast/store"
	"github.com/holdfastq/holdfast/workshop/backendtest"
	"github.com/holdfastq/holdfast/workshop/slow"
)

// raw sends text on a connection of its own, then body if it is not nil, and only then reads the answer.
func (w *world) raw(text string, body io.Reader) *http.Response {
	w.Helper()
	conn, err := new(net.Dialer).DialContext(w.Context(), "tcp", strings.TrimPrefix(w.url, "http://"))
	if err != nil {
		w.Fatal(err)
	}
	w.Cleanup(func() { _ = conn.Close() })
	if err := conn.SetDeadline(time.Now().Add(2 * slow.Patience())); err != nil {
		w.Fatal(err)
	}
	sent := []io.Reader{strings.NewReader(strings.ReplaceAll(text, "\n", "\r\n"))}
	if body != nil {
		sent = append(sent, body)
	}
	if _, err := io.Copy(conn, io.MultiReader(sent...)); err != nil {
		w.Fatalf("send the body: %v", err)
	}
	answer, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		w.Fatalf("read the answer: %v", err)
	}
	received, err := io.ReadAll(answer.Body)
	if err != nil {
		w.Fatalf("read the answer: %v", err)
	}
	answer.Body = io.NopCloser(bytes.NewReader(received))
	return answer
}

// A client that reads the answer only after it has sent a body of 100 MB gets it.
func TestAnswerToAFarTooLargeBody(t *testing.T) {
	t.Parallel()
	w := newWorld(t, backendtest.FileSettings(t), nil)
	const size, head = 100 << 20, "POST /api/v1/tasks HTTP/1.1\nHost: localhost\nContent-Type: application/json\nContent-Length: 104857600\n"
	if answer := w.raw(head+"\n", io.LimitReader(zeros{}, size)); answer.StatusCode != http.StatusRequestEntityTooLarge {
		t.Errorf("%s", answer.Status)
	}
	w = newWorld(t, backendtest.FileSettings(t), nil)
	w.token("viewer", store.Viewer, 0)
	if answer := w.raw(head+"\n", io.LimitReader(zeros{}, size)); answer.StatusCode != http.StatusUnauthorized {
		t.Errorf("without a token: %s", answer.Status)
	}
	// A client that asks first gets the whole answer, and sends nothing.
	if answer := w.raw(head+"Expect: 100-continue\n\n", nil); answer.StatusCode != http.StatusUnauthorized {
		t.Errorf("a client that asks first: %s", answer.Status)
	}
}

// zeros is a reader without an end.
type zeros struct{}

func (zeros) Read(into []byte) (int, error) {
	clear(into)
	return len(into), nil
}

// A body that never ends does not keep its request.
func TestABodyThatNeverEnds(t *testing.T) {
	t.Parallel()
	w := newWorld(t, backendtest.FileSettings(t), nil)
	w.api.SetBodyPause(slow.Times(100 * time.Millisecond))
	const head = "POST /api/v1/tasks HTTP/1.1\nHost: localhost\nContent-Type: application/json\n"
	for _, body := range []string{"Content-Length: 1000\n\n{", "Content-Length: 1000\n\n", "Transfer-Encoding: chunked\n\n1\n{\n"} {
		if answer := w.raw(head+body, nil); answer.StatusCode != http.StatusRequestTimeout {
			t.Errorf("%q: %s", body, answer.Status)
		}
	}
	w = newWorld(t, backendtest.FileSettings(t), nil)
	w.api.SetBodyPause(slow.Times(100 * time.Millisecond))
	w.token("viewer", store.Viewer, 0)
	if answer := w.raw(head+"Content-Length: 1000\n\n{", nil); answer.StatusCode != http.StatusUnauthorized {
		t.Errorf("without a token: %s", answer.Status)
	}
}

// The time limit of a body does not limit the request after it.
func TestABodyDoesNotLimitItsRequest(t *testing.T) {
	t.Parallel()
	search := newSlowSearch()
	w := newWorld(t, backendtest.FileSettings(t), func(o *api.Options) { search.Store, o.Backend.Store = o.Backend.Store, search })
	pause := slow.Times(50 * time.Millisecond)
	w.api.SetBodyPause(pause)
	go func() {
		<-search.arrived
		time.Sleep(3 * pause)
		close(search.release)
	}()
	body := `{"action":"retry","query":"state:dead payload.a:1","dry_run":true,"reason":"x"}`
	if r := w.call("POST", "/api/v1/operations", body); r.status != http.StatusOK {
		t.Errorf("%d %s", r.status, r.text)
	}
}
