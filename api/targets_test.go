package api_test

import (
	"net/http"
	"net/url"
	"testing"
	"time"

	"github.com/holdfastq/holdfast/store"
)

func TestTargetsOverHTTP(t *testing.T) {
	everywhere(t, func(w *world) {
		viewer, operator := w.token("vera", store.Viewer, 0), w.token("ada", store.Operator, 0)
		get := func(target string) response {
			return w.call("GET", "/api/v1/targets/state?target="+url.QueryEscape(target), "", viewer...)
		}
		if r := w.call("GET", "/api/v1/targets", "", viewer...); r.status != 200 || r.text != "{\"targets\":[]}\n" {
			w.Errorf("no targets: %d %s", r.status, r.text)
		}
		get("down.example").want("a target without a gate", http.StatusNotFound, "code", "not_found")
		for _, odd := range []string{"", "ftp://example.com", "https://bücher.example", "a b", "https://a:99999"} {
			get(odd).want("the target "+odd, http.StatusUnprocessableEntity, "parameter", "target")
		}
		report := store.TargetReport{Target: "https://down.example:443", Refused: true, Pause: time.Hour, Cause: "503 Service Unavailable"}
		if err := w.Store.ReportTargets(w.Context(), []store.TargetReport{report}); err != nil {
			w.Fatal(err)
		}
		get("HTTPS://Down.example/hook").want("a breaker", 200, "target", report.Target, "state", "open: no task starts before the next probe", "blocked", 0,
			"breaker.kind", "breaker", "breaker.reason", report.Cause, "breaker.closed_at", some{}, "breaker.breaker.state", "open", "breaker.breaker.probe_at", some{},
			"breaker.breaker.probes", 3, "tripped_by", report.Cause, "pause", nil, "limits.0", nil)
		w.call("POST", "/api/v1/gates", `{"kind":"pause","target":"http://down.example","reason":"works"}`, operator...).want("a pause", http.StatusCreated)
		get("http://down.example").want("a pause of another scheme", 200, "target", "http://down.example:80", "state", "paused: no task starts", "breaker", nil,
			"pause.reason", "works")
		w.call("PUT", "/api/v1/limits", `{"target":"down.example","rate":"5/s"}`, operator...).want("a limit", 200)
		w.call("PUT", "/api/v1/limits", `{"target":"slow.example:8443","concurrency":2}`, operator...).want("a limit", 200)
		w.call("PUT", "/api/v1/limits", `{"per":"target","concurrency":100}`, operator...).want("a limit", 200)
		w.call("POST", "/api/v1/gates", `{"kind":"pause","type":"mail"}`, operator...).want("a pause of a type", http.StatusCreated)
		get("slow.example:8443").want("a limit", 200, "state", "limited: tasks start as the limits allow", "limits.0.concurrency", 2, "limits.0.in_use", 0)
		w.call("GET", "/api/v1/targets", "", viewer...).want("targets", 200, "targets.0.target", "http://down.example:80", "targets.1.limits.0.rate", "5/s",
			"targets.1.breaker.kind", "breaker", "targets.2.target", "https://slow.example:8443", "targets.3", nil)
	})
}
