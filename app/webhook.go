package app

import (
	"github.com/holdfastq/holdfast/configs"
	"github.com/holdfastq/holdfast/consumer/webhook"
)

// NewWebhook returns the HTTP delivery handler a configuration describes; producers
// use it to check payloads at the door.
func NewWebhook(c configs.Config, version string) (*webhook.Handler, error) {
	return webhook.New(webhook.Options{
		Version: version, AllowCIDRs: c.Webhook.AllowCIDRs, Timeout: c.Webhook.Timeout, MaxRetryAfter: c.Webhook.MaxRetryAfter,
		MaxResponse: c.Webhook.MaxResponse, RetryStatuses: c.Webhook.RetryStatuses, Secrets: c.Webhook.Secrets,
	})
}
