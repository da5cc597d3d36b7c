package daemon_test

import (
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sirupsen/logrus"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/app/daemon"
	"github.com/holdfastq/holdfast/configs"
)

// Enqueue returns an error if the payload of an HTTP delivery is invalid, as on the command line.
func TestProducersCheckHTTPPayloads(t *testing.T) {
	t.Parallel()
	cfg, err := configs.Load(configs.Options{Env: []string{"DATABASE_URL=sqlite:" + filepath.Join(t.TempDir(), "holdfast.db")}})
	if err != nil {
		t.Fatal(err)
	}
	b, err := daemon.Open(t.Context(), cfg, logrus.New())
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	p := b.Producer(nil)
	defer p.Close()
	for payload, want := range map[string]string{``: "", `{}`: "url", `{"url":"ftp://a"}`: "ftp", `{"url":"http://a/","metod":"PUT"}`: "metod"} {
		_, err := p.Enqueue(t.Context(), holdfast.NewTask{Type: "http", Payload: []byte(payload)})
		if !errors.Is(err, holdfast.ErrInvalid) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", payload, err)
		}
	}
	if _, err := p.Enqueue(t.Context(), holdfast.NewTask{Type: "http", Payload: []byte(`{"url":"http://a/"}`)}); err != nil {
		t.Error(err)
	}
}
