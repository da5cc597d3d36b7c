package console_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"

	"github.com/sirupsen/logrus"

	"github.com/holdfastq/holdfast/app"
	"github.com/holdfastq/holdfast/configs"
	"github.com/holdfastq/holdfast/console"
	"github.com/holdfastq/holdfast/queue"
	"github.com/holdfastq/holdfast/store"
)

// A program that uses the library serves the console at a path of its own server.
func Example() {
	dir, err := os.MkdirTemp("", "console")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	ctx, log := context.Background(), logrus.New()
	log.SetLevel(logrus.ErrorLevel)
	cfg, err := configs.Load(configs.Options{Env: []string{"DATABASE_URL=sqlite:" + dir + "/holdfast.db", "AMQP_URL=inproc:"}})
	if err != nil {
		panic(err)
	}
	backend, err := app.Open(ctx, cfg, log)
	if err != nil {
		panic(err)
	}
	defer backend.Close()
	q, err := queue.Over(backend, queue.NoSignals())
	if err != nil {
		panic(err)
	}
	defer q.Close()
	pages := console.New(console.Options{Backend: backend, Prefix: "/tasks"})
	defer pages.Close()
	mux := http.NewServeMux()
	mux.Handle("/tasks/", pages)

	secret, err := backend.CreateToken(ctx, store.Actor{Name: "ann", Surface: store.Library}, "ann", store.Operator, 0)
	if err != nil {
		panic(err)
	}
	for _, authorization := range []string{"", "Bearer " + secret} {
		r := httptest.NewRequest(http.MethodGet, "/tasks/", nil)
		r.Header.Set("Authorization", authorization)
		answer := httptest.NewRecorder()
		mux.ServeHTTP(answer, r)
		fmt.Println(answer.Code, answer.Header().Get("Location"))
	}
	// Output:
	// 303 /tasks/login?to=%2Ftasks%2F
	// 200
}
