package configs_test

import (
	"fmt"

	"github.com/holdfastq/holdfast/configs"
)

func ExampleLoad() {
	c, err := configs.Load(configs.Options{
		Env:   []string{"DATABASE_URL=postgres://app:hunter2@db/tasks", "HOLDFAST_TYPES_HTTP_RETRY_BASE=5s"},
		Flags: map[string]string{"worker-concurrency": "200"},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, e := range c.Entries() {
		if e.Origin != "default" {
			fmt.Printf("%s = %s (%s)\n", e.Key, e.Value, e.Origin)
		}
	}
	_, err = configs.Load(configs.Options{Env: []string{"HOLDFAST_DEFAULTS_RETRY_BASE=1 parsec"}})
	fmt.Println(err)
	// Output:
	// database.url = postgres://app:********@db/tasks (env DATABASE_URL)
	// worker.concurrency = 200 (flag --worker-concurrency)
	// types.http.retry.base = 5s (env HOLDFAST_TYPES_HTTP_RETRY_BASE)
	// defaults.retry.base (env HOLDFAST_DEFAULTS_RETRY_BASE): "1 parsec" is not a duration like 10s or 2h
}
