package api_test

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/danielgtaylor/huma/v2"
	"github.com/sirupsen/logrus"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/api"
	"github.com/holdfastq/holdfast/workshop/backendtest"
	"github.com/holdfastq/holdfast/workshop/pgtest"
)

// world is an API over a backend that no other test uses.
type world struct {
	*backendtest.World
	api *api.API
	url string
	log *logText // the log of the API
}

// logText is a log that can be read while it is written.
type logText struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *logText) Write(text []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(text)
}

func (l *logText) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// everywhere runs a test on servers and on a file.
func everywhere(t *testing.T, run func(w *world)) {
	backendtest.Everywhere(t, func(t *testing.T, settings []string) { run(newWorld(t, settings, nil)) })
}

func TestMain(m *testing.M) { os.Exit(pgtest.Main(m)) }

// newWorld opens a backend with the settings and serves its API. change, if not nil, changes the options.
func newWorld(t *testing.T, settings []string, change func(*api.Options)) *world {
	t.Helper()
	w := &world{World: backendtest.Open(t, settings), log: new(logText)}
	logged := logrus.New()
	logged.SetOutput(w.log)
	logged.SetLevel(logrus.TraceLevel)
	o := api.Options{
		Backend: w.Backend, Version: "test", Log: logged,
		Hint: func(h holdfast.Hint) string { return string(h.Kind) },
	}
	if change != nil {
		change(&o)
	}
	w.api = api.New(o)
	server := httptest.NewServer(w.api)
	w.url = server.URL
	if err := w.api.Bind(t.Context(), server.Listener.Addr()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		server.Close()
		if err := w.api.Close(); err != nil {
			t.Error(err)
		}
	})
	return w
}

// response is a response of the API.
type response struct {
	status int
	header http.Header
	text   string
	json   any // the decoded body, if it is JSON
	t      *testing.T
}

// some, as a value for want, matches every value but null.
type some struct{}

// want reports an error unless the response has the status and the members: pairs of a path for at, and a value. label
// names the request.
func (r response) want(label string, status int, members ...any) {
	r.t.Helper()
	ok := r.status == status
	for i := 0; i < len(members); i += 2 {
		value, wanted := r.at(members[i].(string)), members[i+1]
		if n, is := wanted.(int); is {
			wanted = json.Number(strconv.Itoa(n))
		}
		ok = ok && (value == wanted || value != nil && wanted == some{})
	}
	if !ok {
		r.t.Errorf("%s: %d %s; want %d %v", label, r.status, r.text, status, members)
	}
}

// at returns the value at a path of keys and indexes, such as "tasks.0.id", and nil if there is none.
func (r response) at(path string) any {
	value := r.json
	for key := range strings.SplitSeq(path, ".") {
		switch inner := value.(type) {
		case map[string]any:
			value = inner[key]
		case []any:
			i := 0
			if err := json.Unmarshal([]byte(key), &i); err != nil || i >= len(inner) {
				return nil
			}
			value = inner[i]
		default:
			return nil
		}
	}
	return value
}

// call sends a request. The headers are pairs of a name and a value.
func (w *world) call(method, path, text string, headers ...string) response {
	w.Helper()
	request, err := http.NewRequestWithContext(w.Context(), method, w.url+path, strings.NewReader(text))
	if err != nil {
		w.Fatal(err)
	}
	if text != "" {
		request.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i < len(headers); i += 2 {
		if request.Header.Set(headers[i], headers[i+1]); headers[i] == "Host" {
			request.Host = headers[i+1]
		}
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		w.Fatal(err)
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	if err != nil {
		w.Fatal(err)
	}
	r := response{status: answer.StatusCode, header: answer.Header, text: string(body), t: w.T}
	if strings.Contains(answer.Header.Get("Content-Type"), "json") {
		decoder := json.NewDecoder(bytes.NewReader(body))
		decoder.UseNumber()
		if err := decoder.Decode(&r.json); err != nil {
			w.Fatalf("%s %s: %v in %q", method, path, err, body)
		}
		w.fits(request, r)
	}
	return r
}

// fits reports an error unless a JSON answer is as the OpenAPI document describes it.
func (w *world) fits(request *http.Request, r response) {
	w.Helper()
	op := w.api.OperationOf(request)
	if op == nil {
		return // there is no such route
	}
	described := op.Responses[strconv.Itoa(r.status)]
	if described == nil {
		described = op.Responses["default"]
	}
	kind, _, _ := strings.Cut(r.header.Get("Content-Type"), ";")
	form := described.Content[kind]
	if form == nil {
		w.Errorf("%s %s: the document has no %s for the status %d: %s", request.Method, request.URL, kind, r.status, r.text)
		return
	}
	w.valid(request.Method+" "+request.URL.String(), form.Schema, huma.ModeReadFromServer, []byte(r.text))
}

// valid reports an error unless a JSON text fits a schema of the OpenAPI document.
func (w *world) valid(label string, schema *huma.Schema, mode huma.ValidateMode, text []byte) {
	w.Helper()
	var value any
	switch err := json.Unmarshal(text, &value).(type) {
	case nil:
	case *json.UnmarshalTypeError:
		return // a number of a payload that float64 does not have, such as 1e400
	default:
		w.Fatalf("%s: %v in %s", label, err, text)
	}
	result := &huma.ValidateResult{}
	huma.Validate(w.api.Document().Components.Schemas, schema, huma.NewPathBuffer([]byte{}, 0), mode, value, result)
	for _, err := range result.Errors {
		w.Errorf("%s: %v in %s", label, err, text)
	}
}

// get sends a request that must succeed.
func (w *world) get(path string) response {
	w.Helper()
	r := w.call("GET", path, "")
	if r.status != http.StatusOK {
		w.Fatalf("GET %s: %d %s", path, r.status, r.text)
	}
	return r
}
