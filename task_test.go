package holdfast_test

import (
	"encoding/json"
	"errors"
	"math"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/holdfastq/holdfast"
)

func TestTasksInJSON(t *testing.T) {
	t.Parallel()
	full := holdfast.Task{
		ID: math.MaxInt64, Type: "http", Queue: "default", State: holdfast.Running, Payload: json.RawMessage(`{"a":1}`), Unique: "u",
		Attempt: 2, MaxAttempts: 10, Failures: 1, Crashes: 3, Deferrals: 4, Worker: math.MaxInt64, NextRunAt: now, CreatedAt: now,
		StartedAt: now, FinishedAt: now, LastError: "e", Parked: "p",
	}
	for want, task := range map[string]holdfast.Task{
		`{"id":"9223372036854775807","type":"http","queue":"default","priority":"normal","state":"running","payload":{"a":1},"unique":"u","attempt":2,"max_attempts":10,` +
			`"failures":1,"crashes":3,"deferrals":4,"worker":"9223372036854775807","next_run_at":"2026-07-01T12:00:00Z","created_at":"2026-07-01T12:00:00Z",` +
			`"started_at":"2026-07-01T12:00:00Z","finished_at":"2026-07-01T12:00:00Z","last_error":"e","parked":"p"}`: full,
		`{"id":"1","type":"a","queue":"b","priority":"normal","state":"ready","attempt":1,"max_attempts":0,"failures":0,"crashes":0,"deferrals":0,` +
			`"next_run_at":"2026-07-01T12:00:00Z","created_at":"2026-07-01T12:00:00Z"}`: {ID: 1, Type: "a", Queue: "b", State: holdfast.Ready, Attempt: 1, NextRunAt: now, CreatedAt: now},
	} {
		got, err := json.Marshal(task)
		if err != nil || string(got) != want {
			t.Errorf("got  %s, %v\nwant %s", got, err, want)
		}
		var back holdfast.Task
		if err := json.Unmarshal(got, &back); err != nil || !reflect.DeepEqual(back, task) {
			t.Errorf("got %+v, %v\nwant %+v", back, err, task)
		}
	}
}

func TestAttemptsInJSON(t *testing.T) {
	t.Parallel()
	a := holdfast.Attempt{Task: 1, Attempt: 2, Event: holdfast.EventCrash, Worker: 3, WorkerName: "w", FinishedAt: now, Class: "crash", Error: "gone"}
	const want = `{"task":"1","attempt":2,"event":"crash","worker":"3","worker_name":"w","finished_at":"2026-07-01T12:00:00Z","class":"crash","error":"gone"}`
	if got, err := json.Marshal(a); err != nil || string(got) != want {
		t.Errorf("got  %s, %v\nwant %s", got, err, want)
	}
}

func TestIDs(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]holdfast.TaskID{
		"1": 1, "0042": 42, "9223372036854775807": math.MaxInt64,
		"": 0, "0": 0, "-1": 0, "9223372036854775808": 0, "1.0": 0, " 1": 0, "1e3": 0, "0x1": 0, "one": 0,
	} {
		got, err := holdfast.ParseTaskID(text)
		if got != want || (want == 0) != errors.Is(err, holdfast.ErrInvalid) {
			t.Errorf("%q: got %d, %v", text, got, err)
		}
		var id holdfast.TaskID
		if err := json.Unmarshal([]byte(`"`+text+`"`), &id); (err != nil) != (want == 0) || id != want {
			t.Errorf("%q in JSON: got %d, %v", text, id, err)
		}
	}
	for text, want := range map[string]holdfast.WorkerID{"0": 0, "7": 7, "-1": -1, "x": -1} {
		var id holdfast.WorkerID
		err := id.UnmarshalText([]byte(text))
		if (want < 0) != errors.Is(err, holdfast.ErrInvalid) || want >= 0 && id != want {
			t.Errorf("worker %q: got %d, %v", text, id, err)
		}
	}
	for text, want := range map[string]holdfast.BatchID{"7": 7, "9223372036854775807": math.MaxInt64, "0": 0, "-1": 0, "x": 0, "": 0} {
		var id holdfast.BatchID
		if err := json.Unmarshal([]byte(`"`+text+`"`), &id); (want == 0) != errors.Is(err, holdfast.ErrInvalid) || id != want {
			t.Errorf("batch %q: got %d, %v", text, id, err)
		}
	}
	var id holdfast.TaskID
	if err := json.Unmarshal([]byte("5"), &id); err == nil {
		t.Error("a JSON number is taken for an id")
	}
}

const traceContext = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"

func TestNewTasksOutOfRange(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", holdfast.MaxNameLength+1)
	for want, task := range map[string]holdfast.NewTask{
		"a task needs a type":                 {},
		`task type "a b" must be`:             {Type: "a b"},
		`task type "-a" must be`:              {Type: "-a"},
		`task type "a\n" must be`:             {Type: "a\n"},
		`task type "é" must be`:               {Type: "é"},
		`task type "xxx`:                      {Type: long},
		`queue "A" must be`:                   {Type: "a", Queue: "A"},
		`queue "a.b" must be`:                 {Type: "a", Queue: "a.b"},
		`queue "xxx`:                          {Type: "a", Queue: long},
		"the payload has 21 bytes":            {Type: "a", Payload: json.RawMessage(`"` + strings.Repeat("x", 19) + `"`)},
		"the payload is not valid JSON":       {Type: "a", Payload: json.RawMessage("{")},
		"the payload is not valid UTF-8":      {Type: "a", Payload: json.RawMessage("\"\xff\"")},
		`the unique key "a\x00" is not plain`: {Type: "a", Unique: "a\x00"},
		`the unique key "\xff" is not plain`:  {Type: "a", Unique: "\xff"},
		"the trace context has 601 bytes":     {Type: "a", Trace: traceContext + " " + strings.Repeat("x", 545)},
		`the trace context "x" must begin`:    {Type: "a", Trace: "x"},
		`01 a\n" must begin`:                  {Type: "a", Trace: traceContext + " a\n"},
		"the task has 17 tags":                {Type: "a", Tags: make([]string, 17)},
		`the tag "" must be`:                  {Type: "a", Tags: []string{""}},
		`the tag "a b" must be`:               {Type: "a", Tags: []string{"a b"}},
		`the tag "a,b" must be`:               {Type: "a", Tags: []string{"a,b"}},
		`the tag "a\"" must be`:               {Type: "a", Tags: []string{`a"`}},
		`the tag "a\\" must be`:               {Type: "a", Tags: []string{`a\`}},
		`the tag "a\xff" must be`:             {Type: "a", Tags: []string{"a\xff"}},
		`the tag "a\x1b" must be`:             {Type: "a", Tags: []string{"a\x1b"}},
		`the tag "a\u2028" must be`:           {Type: "a", Tags: []string{"a\u2028"}},
		`the tag "xxxxx`:                      {Type: "a", Tags: []string{strings.Repeat("x", 65)}},
		"the tag b appears twice":             {Type: "a", Tags: []string{"b", "c", "b"}},
		"the key has 256 bytes":               {Type: "a", Key: strings.Repeat("x", 256)},
		"the topic has 256 bytes":             {Type: "a", Topic: strings.Repeat("x", 256)},
		`the key "a\nb" must be`:              {Type: "a", Key: "a\nb"},
		"the unique key has 256 bytes":        {Type: "a", Unique: strings.Repeat("x", 256)},
		"the delay -1s is negative":           {Type: "a", Delay: -time.Second},
		"give a delay or a time, not both":    {Type: "a", Delay: 1, At: now},
		"the time 10000-01-01T01:00:00Z must be in the years from 1970 to 9999": {Type: "a", At: time.Date(9999, 12, 31, 23, 0, 0, 0, time.FixedZone("", -7200))},
		"the time 1969-12-31T23:59:59Z must be in the years":                    {Type: "a", At: time.Unix(-1, 0)},
		"is longer than ten years (87840h0m0s)":                                 {Type: "a", Delay: holdfast.MaxDuration + 1},
		"max attempts -1 must be between 0 and":                                 {Type: "a", MaxAttempts: -1},
		"max attempts 2147483648 must be between ":                              {Type: "a", MaxAttempts: math.MaxInt32 + 1},
	} {
		err := task.Validate(20)
		if !errors.Is(err, holdfast.ErrInvalid) || !strings.Contains(err.Error(), want) || len(err.Error()) > 400 {
			t.Errorf("got %v, want %s", err, want)
		}
	}
	for _, task := range []holdfast.NewTask{
		{Type: "a"}, {Type: "Mail.send_v2:eu/x-1", Queue: "bulk-2_x", Payload: json.RawMessage(" null "), Delay: holdfast.MaxDuration, Unique: "é☃ 1", Key: "Kunde 7, é☃", Tags: []string{"größe:1/2", strings.Repeat("x", 64)}},
		{Type: long[1:], Queue: long[1:], Unique: strings.Repeat("x", 255), At: time.Unix(0, 0), MaxAttempts: math.MaxInt32},
		{Type: "0", Payload: json.RawMessage(`"` + strings.Repeat("x", 18) + `"`)},
	} {
		if err := task.Validate(20); err != nil {
			t.Errorf("%+v: %v", task, err)
		}
	}
}

// Every accepted payload can be read, even inside the documents that contain tasks.
func TestDepthOfPayloads(t *testing.T) {
	t.Parallel()
	nested := func(n int) []byte { return []byte(strings.Repeat(`{"a":[`, n/2) + strings.Repeat(`]}`, n/2)) }
	for name, c := range map[string]struct {
		payload []byte
		ok      bool
	}{
		"the limit":           {nested(holdfast.MaxPayloadDepth), true},
		"more":                {nested(holdfast.MaxPayloadDepth + 2), false},
		"more than JSON has":  {nested(12_000), false},
		"brackets in strings": {[]byte(`["\\", "\"` + strings.Repeat("[", 30_000) + `"]`), true},
		"many in a row":       {[]byte("[" + strings.Repeat("[],{},", 10_000) + "1]"), true},
	} {
		err := holdfast.NewTask{Type: "t", Payload: c.payload}.Validate(holdfast.DefaultMaxPayload)
		if c.ok != (err == nil) || !c.ok && !errors.Is(err, holdfast.ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
		if text, err := json.MarshalIndent(map[string]any{"tasks": []holdfast.Task{{Payload: c.payload}}}, "", ""); c.ok && (err != nil || !json.Valid(text)) {
			t.Errorf("%s: cannot be encoded: %v", name, err)
		}
	}
}
