"""What MIOpen asks for and when: kernel keys, versions, kernel sources, problem keys."""
