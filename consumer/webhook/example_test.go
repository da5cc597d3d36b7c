package webhook_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/consumer/webhook"
)

const key = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSwMfKQ9r8G"

func Example() {
	receiver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		verifier, _ := standardwebhooks.NewWebhook(key)
		body, _ := io.ReadAll(r.Body)
		fmt.Println("signed:", verifier.Verify(body, r.Header) == nil)
		fmt.Println(r.Header.Get("webhook-id"), "attempt", r.Header.Get(webhook.AttemptHeader))
		w.WriteHeader(http.StatusGone)
	}))
	defer receiver.Close()

	deliver, err := webhook.New(webhook.Options{
		AllowCIDRs: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")},
		Secrets:    map[string]webhook.Secret{"billing": {Keys: []string{key}, Hosts: []string{"127.0.0.1"}}},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer deliver.Close()
	err = deliver.Handle(context.Background(), holdfast.Task{
		ID: 42, ImportedKey: "task_42_vxtgm5wrkz2cpbnqxj4kkd6aqe", Attempt: 3,
		Payload: []byte(`{"url": "` + receiver.URL + `", "body": {"paid": true}, "secret_ref": "billing"}`),
	})
	fmt.Println(holdfast.ReportOf(err).Class)
	// Output:
	// signed: true
	// task_42_vxtgm5wrkz2cpbnqxj4kkd6aqe attempt 3
	// http_410
}
