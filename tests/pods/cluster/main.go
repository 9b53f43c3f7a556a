// The programs of Kubernetes that the pods of `make pods` need, in one: the first argument selects one.
package main

import (
	"context"
	"fmt"
	"os"

	"github.com/spf13/cobra"
	"k8s.io/component-base/cli"
	kubectl "k8s.io/kubectl/pkg/cmd"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	manager "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	proxy "k8s.io/kubernetes/cmd/kube-proxy/app"
	kubelet "k8s.io/kubernetes/cmd/kubelet/app"
)

var programs = map[string]func() *cobra.Command{
	"apiserver": apiserver.NewAPIServerCommand,
	"manager":   manager.NewControllerManagerCommand,
	"proxy":     proxy.NewProxyCommand,
	"kubelet":   func() *cobra.Command { return kubelet.NewKubeletCommand(context.Background()) },
	"kubectl":   kubectl.NewDefaultKubectlCommand,
}

func main() {
	if len(os.Args) < 2 || programs[os.Args[1]] == nil {
		fmt.Fprintln(os.Stderr, "usage: cluster apiserver|manager|proxy|kubelet|kubectl OPTIONS")
		os.Exit(2)
	}
	name := os.Args[1]
	os.Args = append(os.Args[:1], os.Args[2:]...)
	command := programs[name]()
	if name == "kubectl" {
		// kubectl prints its errors itself.
		if cli.RunNoErrOutput(command) != nil {
			os.Exit(1)
		}
		return
	}
	os.Exit(cli.Run(command))
}
